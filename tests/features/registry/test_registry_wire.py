"""The serialization of registry records: round trips of blocks, the detection of damage, and their form as entries."""

from __future__ import annotations

import json
from zlib import crc32

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from doi_proxy.cache.entry import FOREVER
from doi_proxy.errors import DamagedEntry
from doi_proxy.features.registry.json_values import LAST_DATE
from doi_proxy.features.registry.sqlite_blocks import (
    FORMAT_VERSION,
    MAX_BYTES,
    MAX_ROWS,
    RegistryRow,
    find_line,
    find_row,
    pack_block,
    split_lines,
    to_entry,
    to_record,
    to_row,
    unpack_block,
    unpack_lines,
    write_block_line,
)
from tests.cache.entries import NOW

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40)
rows = st.tuples(
    texts.map(lambda text: "10.1000/" + text.upper()),
    st.integers(0, LAST_DATE),
    st.sampled_from(["", "Crossref", "DataCite"]) | texts,
    texts.map(lambda text: "https://publisher.example/" + text),
)
blocks = st.lists(rows, min_size=1, max_size=MAX_ROWS, unique_by=lambda row: row[0]).map(sorted)
KEY = "10.1000/182"


def row(key: str = KEY, url: str = "https://a.example/1") -> RegistryRow:
    return key, int(NOW), "Crossref", url


def pack(first: str, rows: list[RegistryRow]) -> bytes:
    return pack_block(first, list(map(write_block_line, rows)))


# An example is a whole block: its rows take 0.1 s to draw.
@settings(max_examples=20)
@given(blocks)
def test_unpack_block_returns_the_packed_rows(packed: list[RegistryRow]) -> None:
    first = packed[0][0]
    data = pack(first, packed)
    assert unpack_block(first, data) == packed
    assert [find_row(one[0], first, data) for one in packed] == packed
    assert unpack_lines(first, data) == [write_block_line(one) for one in packed]


@given(rows)
def test_a_record_survives_its_row(one: RegistryRow) -> None:
    assert to_row(to_record(one))[1:] == one[1:]


@given(blocks, blocks)
def test_a_block_under_another_key_is_damaged(one: list[RegistryRow], other: list[RegistryRow]) -> None:
    assume(one[0][0] != other[0][0])
    with pytest.raises(DamagedEntry):
        unpack_block(other[0][0], pack(one[0][0], one))


@given(st.integers(min_value=0), st.integers(min_value=0, max_value=7))
def test_a_flipped_bit_is_damage(place: int, bit: int) -> None:
    data = bytearray(pack(KEY, [row(), row("10.1000/183")]))
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(DamagedEntry):
        unpack_block(KEY, bytes(data))


@pytest.mark.parametrize("data", [b"", b"x" * 40, "text", 1, None])
def test_other_data_is_damage(data: object) -> None:
    with pytest.raises(DamagedEntry):
        unpack_block(KEY, data)
    with pytest.raises(DamagedEntry):
        find_row(KEY, KEY, data)


@given(st.lists(st.integers(1, 16_384), max_size=80))
def test_blocks_keep_their_limits(lengths: list[int]) -> None:
    long = [b"u" * length for length in lengths]
    cut = list(split_lines(long))
    assert [one for block in cut for one in block] == long
    assert all(0 < len(block) <= MAX_ROWS for block in cut)
    assert all(sum(map(len, block)) <= MAX_BYTES for block in cut if len(block) > 1)


def test_a_row_that_a_block_does_not_have_is_none() -> None:
    assert find_row("10.1000/183", KEY, pack(KEY, [row(), row("10.1000/184")])) is None


def test_a_block_of_another_format_is_damage() -> None:
    body = bytes([FORMAT_VERSION + 1]) + pack(KEY, [row()])[5:]
    data = crc32(body, crc32(KEY.encode())).to_bytes(4, "little") + body
    with pytest.raises(DamagedEntry, match="unknown format: 2"):
        unpack_block(KEY, data)


@pytest.mark.parametrize("date", [-1, LAST_DATE + 1, 10**30])
def test_a_date_that_is_not_possible_is_damage(date: int) -> None:
    data = pack(KEY, [(KEY, date, "Crossref", "https://a.example/")])
    for read in (lambda: unpack_block(KEY, data), lambda: find_row(KEY, KEY, data)):
        with pytest.raises(DamagedEntry, match="date"):
            read()


def test_an_entry_is_never_fresh_always_usable_and_has_the_url_value() -> None:
    entry = to_entry(row())
    assert (entry.key, entry.agency, entry.fetched_at) == ("10.1000/182", "Crossref", NOW)
    assert not entry.is_fresh(NOW)
    assert entry.is_usable(FOREVER - 1)
    assert json.loads(entry.answer.values) == [
        {
            "index": 1,
            "type": "URL",
            "data": {"format": "string", "value": "https://a.example/1"},
            "ttl": 86400,
            "timestamp": "2023-11-14T22:13:20Z",
        }
    ]


@given(blocks, texts)
def test_a_key_is_found_among_the_lines_in_the_order_of_keys(packed: list[RegistryRow], text: str) -> None:
    lines, keys = list(map(write_block_line, packed)), [one[0] for one in packed]
    assert [find_line(lines, key.encode()) for key in keys] == [(at, True) for at in range(len(keys))]
    key = "10.1000/" + text
    at, is_known = find_line(lines, key.encode())
    assert (is_known, sorted([*keys, key])[at]) == (key in keys, key)
