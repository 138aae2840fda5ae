"""Records that were parsed once are kept within a number and a size."""

from __future__ import annotations

from app.handle.record_cache import RecordCache


def values(letter: str) -> bytes:
    """A record of 26 bytes."""
    return b'[{"index":1,"type":"%s"}]' % letter.encode()


SIZE = len(values("A"))


def test_a_record_is_parsed_once() -> None:
    records = RecordCache(max_records=2, max_bytes=1_000)
    assert records.parse(values("A")) is records.parse(values("A"))
    assert (len(records), records.bytes) == (1, SIZE)


def test_the_record_that_was_used_least_recently_goes_first() -> None:
    records = RecordCache(max_records=2, max_bytes=1_000)
    first, second = records.parse(values("A")), records.parse(values("B"))
    assert records.parse(values("A")) is first
    records.parse(values("C"))
    assert records.parse(values("A")) is first
    assert records.parse(values("B")) is not second
    assert (len(records), records.bytes) == (2, 2 * SIZE)


def test_the_bytes_of_records_are_bounded_exactly() -> None:
    records = RecordCache(max_records=10, max_bytes=2 * SIZE)
    for letter in "ABC":
        records.parse(values(letter))
    assert (len(records), records.bytes) == (2, 2 * SIZE)
    small = RecordCache(max_records=10, max_bytes=2 * SIZE - 1)
    small.parse(values("A"))
    small.parse(values("B"))
    assert (len(small), small.bytes) == (1, SIZE)
