"""A table of cases as one test, which reports every row that fails.

    @table(("text", "expected"), [("doi:10.1000/1", "10.1000/1"), ...])
    def test_a_scheme_is_taken_off(text: str, expected: str) -> None: ...

It is written as `pytest.mark.parametrize` is, and can be stacked like it. A parametrized test costs pytest about 7 ms a
row: its collection in each worker, its fixtures, an event loop, and its reports. A row of a table costs what it does.
Rows share the fixtures of the test, so `parametrize` remains right where a row needs its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Final

import pytest

#: How much of a value names its row.
_SHOWN: Final = 120


def table(
    names: str | Sequence[str],
    rows: Iterable[Any],
    *,
    ids: Callable[[Any], object] | Iterable[object] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run the test with each of the rows, the values of the arguments `names`; all rows run, whichever fail."""
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = _label(arguments, rows, ids)

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        run: Any = _run_async(test, cases) if inspect.iscoroutinefunction(test) else _run(test, cases)
        signature = inspect.signature(test)
        rest = [value for name, value in signature.parameters.items() if name not in arguments]
        # pytest reads from the signature which fixtures a test needs.
        run.__signature__ = signature.replace(parameters=rest)
        decorated: Callable[..., Any] = run
        return decorated

    return decorate


Case = tuple[str, dict[str, Any]]


def _label(
    names: list[str], rows: Iterable[Any], ids: Callable[[Any], object] | Iterable[object] | None
) -> tuple[Case, ...]:
    given = None if ids is None or callable(ids) else list(ids)
    cases: list[Case] = []
    for number, row in enumerate(rows):
        label: object = given[number] if given is not None else None
        if isinstance(row, type(pytest.param())):
            assert not row.marks, "a row has no marks of its own"
            label, values = row.id or label, tuple(row.values)
        else:
            values = (row,) if len(names) == 1 else tuple(row)
        assert len(values) == len(names), f"row {number} has {len(values)} values for {names}"
        shown = [ids(value) if callable(ids) else None for value in values]
        texts = [
            f"{name}={text if text is not None else repr(value)[:_SHOWN]}"
            for name, value, text in zip(names, values, shown, strict=True)
        ]
        cases.append((str(label or ", ".join(texts)), dict(zip(names, values, strict=True))))
    return tuple(cases)


def _run(test: Callable[..., None], cases: tuple[Case, ...]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        failures: list[Exception] = []
        for label, values in cases:
            try:
                test(*arguments, **fixtures, **values)
            except (Exception, pytest.fail.Exception) as failure:
                failures.append(_name_row(failure, label))
        _report(failures, len(cases))

    return run


def _run_async(test: Callable[..., Awaitable[None]], cases: tuple[Case, ...]) -> Callable[..., Awaitable[None]]:
    @wraps(test)
    async def run(*arguments: Any, **fixtures: Any) -> None:
        failures: list[Exception] = []
        for label, values in cases:
            try:
                await test(*arguments, **fixtures, **values)
            except (Exception, pytest.fail.Exception) as failure:
                failures.append(_name_row(failure, label))
        _report(failures, len(cases))

    return run


def _name_row(failure: BaseException, label: str) -> Exception:
    if not isinstance(failure, Exception):  # `pytest.fail`, also of `pytest.raises`
        failure = AssertionError(str(failure)).with_traceback(failure.__traceback__)
    failure.add_note(f"row: {label}")
    return failure


def _report(failures: list[Exception], count: int) -> None:
    # Not when the tests are collected: rows of recordings that are not there belong to a test that is skipped.
    assert count, "a table without rows proves nothing"
    if failures:
        rows = "; ".join(failure.__notes__[-1].removeprefix("row: ") for failure in failures)
        raise ExceptionGroup(f"{len(failures)} of {count} rows failed: {rows}", failures)
