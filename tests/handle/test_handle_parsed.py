"""Records that were parsed once are kept within a number and a size."""

from __future__ import annotations

from app.handle.parsed import ParsedRecords


def values(letter: str) -> bytes:
    """A record of 26 bytes."""
    return b'[{"index":1,"type":"%s"}]' % letter.encode()


SIZE = len(values("A"))


def test_a_record_is_parsed_once() -> None:
    records = ParsedRecords(max_records=2, max_bytes=1_000)
    assert records.read(values("A")) is records.read(values("A"))
    assert (len(records), records.bytes) == (1, SIZE)


def test_the_record_that_was_used_least_recently_goes_first() -> None:
    records = ParsedRecords(max_records=2, max_bytes=1_000)
    first, second = records.read(values("A")), records.read(values("B"))
    assert records.read(values("A")) is first
    records.read(values("C"))
    assert records.read(values("A")) is first
    assert records.read(values("B")) is not second
    assert (len(records), records.bytes) == (2, 2 * SIZE)


def test_the_bytes_of_records_are_bounded_exactly() -> None:
    records = ParsedRecords(max_records=10, max_bytes=2 * SIZE)
    for letter in "ABC":
        records.read(values(letter))
    assert (len(records), records.bytes) == (2, 2 * SIZE)
    small = ParsedRecords(max_records=10, max_bytes=2 * SIZE - 1)
    small.read(values("A"))
    small.read(values("B"))
    assert (len(small), small.bytes) == (1, SIZE)
