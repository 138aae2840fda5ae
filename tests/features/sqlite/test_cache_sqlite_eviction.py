"""Which entries leave: a decision about the rows that the hand passes, without the file."""

from __future__ import annotations

from doi_proxy.features.sqlite.writer import Row, choose_leaving

NOW = 1_000.0
SIZE = 100


def rows(*used: int, ends: int = 2_000) -> list[Row]:
    """Rows of 100 bytes with these times of use."""
    return [(f"10.1/{number}", ends, when, SIZE) for number, when in enumerate(used)]


def test_nothing_leaves_a_store_that_is_not_too_large() -> None:
    assert choose_leaving(rows(1, 2, 3), NOW, 0) == []


def test_what_is_past_its_hard_expiry_always_leaves() -> None:
    expired = [("10.1/X", NOW, 999, SIZE), ("10.1/Y", NOW - 1, 999, SIZE)]
    assert choose_leaving(rows(1) + expired, NOW, -500) == expired


def test_those_used_longest_ago_leave_until_the_store_fits() -> None:
    found = rows(5, 1, 9, 2, 8, 7, 6, 3)
    assert choose_leaving(found, NOW, 101) == [found[1], found[3]]
    assert choose_leaving(found, NOW, 1) == [found[1]]


def test_at_most_a_quarter_of_the_rows_leaves_at_once() -> None:
    """The others may have been used later than the next rows that the hand passes."""
    found = rows(*range(8))
    assert choose_leaving(found, NOW, 10_000) == found[:2]
    assert choose_leaving(found[:1], NOW, 10_000) == found[:1]


def test_the_bytes_of_expired_rows_count() -> None:
    found = [*rows(1, 2), ("10.1/X", 0, 999, SIZE)]
    assert choose_leaving(found, NOW, 100) == found[2:]


def test_a_row_with_values_of_any_type_leaves_first() -> None:
    damaged: Row = ("10.1/X", "never", None, b"")
    assert choose_leaving([*rows(1), damaged], NOW, 0) == [damaged]
