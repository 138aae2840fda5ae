"""A record: its values as bytes, by type and by index, when the first of them ends, and the cache of records."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handle_protocol.errors import UnusableAnswer
from handle_protocol.value import Record, RecordCache, read_values, write_values
from tests.cache.entries import NOW

TYPES = st.sampled_from(["URL", "url", "URL.x", "Url.x.y", "URLX", "EMAIL", "HS_ADMIN", "É.a", "é", ""])
VALUES = st.lists(st.tuples(st.integers(-1, 9), TYPES), max_size=8)


def record(*values: tuple[int, str], **members: object) -> Record:
    return read_values(json.dumps([{"index": index, "type": type_, **members} for index, type_ in values]).encode())


@given(
    VALUES,
    st.lists(st.sampled_from(["URL", "URL.", "url.x.", ".", "", "é", "É."]), max_size=4),
    st.lists(st.integers(-1, 9), max_size=3),
)
def test_a_selection_has_the_values_of_each_type_or_index_in_the_order_of_the_record(
    values: list[tuple[int, str]], types: list[str], indexes: list[int]
) -> None:
    found = record(*values)
    expected = [
        value
        for value in found.values
        if not (types or indexes) or value.index in indexes or any(value.has_type(one) for one in types)
    ]
    assert list(found.select(types, indexes).values) == expected


def test_a_dot_alone_names_no_type() -> None:
    assert record((1, ""), (2, ".x"), (3, "URL")).select(["."]).values == ()


@given(VALUES)
def test_values_that_are_written_are_the_bytes_that_were_read(values: list[tuple[int, str]]) -> None:
    raw = json.dumps([{"index": index, "type": type_} for index, type_ in values], separators=(",", ":")).encode()
    assert write_values(read_values(raw)) == raw


def test_the_values_of_a_type_are_its_own_and_with_a_dot_those_of_its_subtypes_too() -> None:
    found = record((1, "URL"), (2, "url.x"), (3, "URLX"))
    for _ in range(2):
        assert [value.index for value in found.of_type("Url.")] == [1, 2]
        assert [value.index for value in found.of_type("Url")] == [1]
        assert found.of_type("EMAIL") == ()


def test_a_record_ends_with_the_first_of_its_values_or_after_a_day() -> None:
    raw = b'[{"index":1,"type":"A","ttl":60},{"index":2,"type":"B","ttl":"2023-11-14T22:13:50Z"}]'
    assert read_values(raw).ends_at(NOW) == NOW + 30
    assert read_values(b"[]").ends_at(NOW) == NOW + 86_400


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"null",
        b"[",
        b"[1]",
        b'[{"index":1,"type":"A"}] x',
        # RFC 8259, section 8.1: JSON between systems is UTF-8.
        b'[{"index":1,"type":"A","other":"\xff"}]',
        b"[" * 100_000,
    ],
)
def test_bytes_that_are_not_an_array_of_values_are_refused(raw: bytes) -> None:
    with pytest.raises(UnusableAnswer):
        read_values(raw)


def one_value(letter: str) -> bytes:
    """A record of 26 bytes."""
    return b'[{"index":1,"type":"%s"}]' % letter.encode()


SIZE = len(one_value("A"))


def test_a_record_is_parsed_once() -> None:
    records = RecordCache(max_records=2, max_bytes=1_000)
    assert records.parse(one_value("A")) is records.parse(one_value("A"))
    assert (len(records), records.bytes) == (1, SIZE)


def test_the_record_that_was_used_least_recently_goes_first() -> None:
    records = RecordCache(max_records=2, max_bytes=1_000)
    first, second = records.parse(one_value("A")), records.parse(one_value("B"))
    assert records.parse(one_value("A")) is first
    records.parse(one_value("C"))
    assert records.parse(one_value("A")) is first
    assert records.parse(one_value("B")) is not second
    assert (len(records), records.bytes) == (2, 2 * SIZE)


def test_the_bytes_of_records_are_bounded_exactly() -> None:
    records = RecordCache(max_records=10, max_bytes=2 * SIZE)
    for letter in "ABC":
        records.parse(one_value(letter))
    assert (len(records), records.bytes) == (2, 2 * SIZE)
    small = RecordCache(max_records=10, max_bytes=2 * SIZE - 1)
    small.parse(one_value("A"))
    small.parse(one_value("B"))
    assert (len(small), small.bytes) == (1, SIZE)
