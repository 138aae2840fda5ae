"""`tests.table`: every row runs, and every one that fails is named."""

from __future__ import annotations

import inspect

import pytest

from tests.table import table

ROWS = [("a", 1), pytest.param("b", 2, id="second"), ("c", 3)]


def test_every_row_runs_and_each_failure_names_its_row() -> None:
    seen: list[str] = []

    @table("text, number", ROWS)
    def is_even(text: str, number: int) -> None:
        seen.append(text)
        assert number % 2 == 0

    with pytest.raises(ExceptionGroup) as caught:
        is_even()
    assert seen == ["a", "b", "c"]
    assert str(caught.value).startswith("2 of 3 rows failed: text='a', number=1; text='c', number=3")
    assert [failure.__notes__ for failure in caught.value.exceptions] == [
        ["row: text='a', number=1"],
        ["row: text='c', number=3"],
    ]


@pytest.mark.anyio
async def test_a_failure_of_pytest_is_one_of_its_row() -> None:
    @table(["text", "number"], ROWS)
    async def raises(text: str, number: int) -> None:
        with pytest.raises(ValueError, match="second"):
            if number == 2:
                raise ValueError("second")

    with pytest.raises(ExceptionGroup, match="2 of 3 rows failed") as caught:
        await raises()
    assert all("DID NOT RAISE" in str(failure) for failure in caught.value.exceptions)


def test_tables_are_stacked_and_keep_the_other_arguments() -> None:
    seen: list[tuple[str, int, bool]] = []

    @table("text", "xy")
    @table("number", [1, 2], ids=str)
    def note(text: str, number: int, fixture: bool) -> None:
        seen.append((text, number, fixture))

    assert list(inspect.signature(note).parameters) == ["fixture"]
    note(fixture=True)
    assert seen == [("x", 1, True), ("x", 2, True), ("y", 1, True), ("y", 2, True)]


def test_a_table_without_rows_fails_when_it_runs() -> None:
    """Recordings that are not there must not stop the collection of all tests."""
    run = table("text", [])(lambda text: None)
    with pytest.raises(AssertionError, match="without rows"):
        run()
