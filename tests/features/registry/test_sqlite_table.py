"""The table of registry records: what a write does with a known name, resuming an import, and deletion."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from doi_proxy.cache.entry import FOREVER
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.features.registry import sqlite_blocks
from doi_proxy.features.registry.answers import count_registry, to_entry
from doi_proxy.features.registry.json_values import LAST_DATE, RegistryRow
from doi_proxy.features.registry.sqlite_blocks import (
    FORMAT_VERSION,
    MAX_BATCH,
    MAX_BYTES,
    MAX_ROWS,
    RegistryTable,
    WriteCounts,
    find_row,
    pack_block,
    split_lines,
    unpack_block,
    unpack_lines,
    write_block_line,
)
from doi_proxy.store.file import connect_to_read
from tests.cache.entries import NOW
from tests.clock import Clock
from tests.examples import examples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def table(path: Path, clock: Clock) -> Iterator[RegistryTable]:
    with RegistryTable(path, now=clock()) as opened:
        yield opened


def record(number: int = 1, url: str = "https://a.example/", date: int = int(NOW)) -> RegistryRow:
    return f"10.1000/{number:05}", date, "DataCite", url


def rows(*records: RegistryRow) -> list[RegistryRow]:
    return list(records)


def keys(table: RegistryTable, prefix: str = "", after: str = "") -> list[str]:
    return [row[0] for page in table.pages(prefix, after=after) for row in page]


@pytest.mark.parametrize(
    ("later", "counts", "stays"),
    [
        (record(date=int(NOW) - 1, url="https://b.example/"), WriteCounts(older=1), record()),
        (record(date=int(NOW) + 1), WriteCounts(same=1), record(date=int(NOW) + 1)),
        (record(), WriteCounts(same=1), record()),
        (record(url="https://b.example/"), WriteCounts(changed=1), record(url="https://b.example/")),
    ],
)
def test_the_later_date_wins(table: RegistryTable, later: RegistryRow, counts: WriteCounts, stays: RegistryRow) -> None:
    table.write(rows(record()))
    assert table.write(rows(later)) == counts
    assert (table.find("10.1000/00001"), table.count()) == (stays, 1)


def test_a_damaged_block_is_replaced_and_the_others_stay(path: Path, table: RegistryTable) -> None:
    table.write(rows(*(record(n) for n in range(2 * MAX_ROWS))))
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE registry_blocks SET data = x'00' WHERE first = '10.1000/00000'")
    file.close()
    with pytest.raises(DamagedEntry):
        table.find("10.1000/00001")
    assert keys(table) == [f"10.1000/{n:05}" for n in range(MAX_ROWS, 2 * MAX_ROWS)]
    assert table.write(rows(record(1, date=1))) == WriteCounts(new=1)
    assert (table.find("10.1000/00001"), table.count()) == (record(1, date=1), MAX_ROWS + 1)


def test_a_row_with_a_blob_as_its_key_hides_no_record(path: Path, table: RegistryTable) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("INSERT INTO registry_blocks VALUES (x'00', 'many', 'text')")
    file.close()
    assert table.write(rows(record(1))) == WriteCounts(new=1)
    assert (table.find("10.1000/00001"), keys(table)) == (record(1), ["10.1000/00001"])


def test_long_records_are_in_blocks_of_their_own(path: Path, table: RegistryTable) -> None:
    long = [record(n, "https://a.example/" + "x" * 16_000) for n in range(MAX_ROWS)]
    table.write(rows(*long))
    with closing(sqlite3.connect(path)) as file, file:
        (most,) = file.execute("SELECT max(records) FROM registry_blocks").fetchone()
    file.close()
    assert most <= 2
    assert table.find(long[-1][0]) == long[-1]


changes = st.lists(
    st.tuples(st.booleans(), st.sets(st.integers(0, 300), min_size=1, max_size=150), st.integers(1, 3)), max_size=12
)


@settings(max_examples=examples(1))
@given(changes)
def test_blocks_have_the_records_that_a_dictionary_has(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, set[int], int]]
) -> None:
    model: dict[str, RegistryRow] = {}
    path = tmp_path_factory.mktemp("store") / "store"
    with RegistryTable(path, now=NOW) as table, closing(connect_to_read(path)) as connection:
        for deletes, numbers, date in steps:
            chosen = [record(n, f"https://a.example/{date}", date) for n in sorted(numbers)]
            if deletes:
                gone = [one[0] for one in chosen if model.pop(one[0], None)]
                assert table.forget([one[0] for one in chosen]) == len(gone)
            else:
                table.write(rows(*chosen))
                for one in chosen:
                    if one[0] not in model or one[1] >= model[one[0]][1]:
                        model[one[0]] = one
        assert [row for page in table.pages() for row in page] == rows(*(model[key] for key in sorted(model)))
        assert table.count() == len(model)
        assert all(table.find(key) == one for key, one in model.items())
        assert table.find("10.1000/X") is None
        for prefix in ("10.1000/", "10.1000/0001", "10.1000/00299", "10.2/"):
            assert sqlite_blocks.count(connection, prefix) == sum(key.startswith(prefix) for key in model)
        some = [f"10.1000/{n:05}" for n in range(0, 400, 7)]
        assert sqlite_blocks.count_known(connection, some) == len(model.keys() & set(some))


def test_the_records_of_a_prefix_begin_with_the_one_whose_name_is_the_prefix(table: RegistryTable) -> None:
    table.write(rows(*(record(n) for n in range(100))))
    for key in [f"10.1000/{n:05}" for n in range(100)]:
        assert keys(table, key) == [key]


def test_a_damaged_key_of_a_block_does_not_stop_a_write(path: Path, table: RegistryTable) -> None:
    table.write(rows(*(record(n) for n in range(3 * MAX_ROWS))))
    with closing(sqlite3.connect(path)) as file, file:
        # SQLite sorts these bytes after this name. Read with a replacement character, they sort before it.
        file.execute("UPDATE registry_blocks SET first = CAST(x'f7' AS TEXT) WHERE first = '10.1000/00064'")
    file.close()
    assert table.write([record(1), ("\U0010ffff", 1, "", "https://a.example/")]) == WriteCounts(same=1, new=1)


def test_pages_have_the_records_of_a_prefix_after_a_key(table: RegistryTable) -> None:
    table.write(rows(*(record(n) for n in range(2_500)), ("10.2/X", 0, "", "u")))
    assert len(keys(table)) == 2_501
    assert keys(table, "10.1000/", "10.1000/02497") == ["10.1000/02498", "10.1000/02499"]
    assert keys(table, "10.2/") == ["10.2/X"]
    assert keys(table, "10.3/") == []


def test_a_prefix_is_forgotten_in_several_transactions(table: RegistryTable) -> None:
    table.write(rows(*(record(n) for n in range(12_000))))
    table.write(rows(("10.10001/X", 0, "", "u")))
    assert table.forget_prefix("10.1000/") == 12_000
    assert (keys(table), table.count()) == (["10.10001/X"], 1)


def test_no_record_is_kept_of_a_write_that_fails(path: Path, table: RegistryTable) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TRIGGER full BEFORE UPDATE ON registry_total BEGIN SELECT RAISE(ABORT, 'full'); END")
    file.close()
    with pytest.raises(StoreError, match="full"):
        table.write(rows(record()))
    assert (table.count(), table.find("10.1000/00001")) == (0, None)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("DROP TRIGGER full")
    file.close()
    assert table.write(rows(record())) == WriteCounts(new=1)


def test_a_batch_has_a_limit(table: RegistryTable) -> None:
    with pytest.raises(ValueError, match="more than"):
        table.write(rows(record()) * (MAX_BATCH + 1))


def test_names_with_the_last_code_point_are_counted_under_their_prefix(table: RegistryTable) -> None:
    names = ["10.1000/" + "\U0010ffff" * length for length in (1, 2, 2_040)]
    table.write(rows(*((name, 1, "", "https://a.example/") for name in names)))
    with closing(connect_to_read(table.path)) as connection:
        assert sqlite_blocks.count(connection, "10.1000/") == 3
    assert count_registry(table.path, "10.1000/", NOW) == 3


@pytest.mark.parametrize("others", [0, 10])
def test_the_entries_of_names_are_counted_among_few_and_among_many(
    path: Path, table: RegistryTable, others: int
) -> None:
    stored = [record(number)[0] for number in (1, 999, *range(2, 2 + others))]
    with closing(sqlite3.connect(path)) as file, file:
        insert = "INSERT INTO entries (key, stale_until, last_used, data) VALUES (?, 0, 0, x'')"
        file.executemany(insert, [(key,) for key in stored])
    asked = [record(number)[0] for number in (1, 500, 999)]
    assert table.count_entries(asked) == 2
    assert [table.count_entries([key]) for key in asked] == [1, 0, 1]


# --- The serialization of registry records: round trips of blocks, the detection of damage, and their form as ent ----


texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=40)
rows_registry_wire = st.tuples(
    texts.map(lambda text: "10.1000/" + text.upper()),
    st.integers(0, LAST_DATE),
    st.sampled_from(["", "Crossref", "DataCite"]) | texts,
    texts.map(lambda text: "https://publisher.example/" + text),
)
blocks = st.lists(rows_registry_wire, min_size=1, max_size=MAX_ROWS, unique_by=lambda row: row[0]).map(sorted)
KEY = "10.1000/182"


def row(key: str = KEY, url: str = "https://a.example/1") -> RegistryRow:
    return key, int(NOW), "Crossref", url


def pack(first: str, rows_registry_wire: list[RegistryRow]) -> bytes:
    return pack_block(first, list(map(write_block_line, rows_registry_wire)))


# An example is a whole block: its rows_registry_wire take 0.1 s to draw.
@settings(max_examples=20)
@given(blocks)
def test_unpack_block_returns_the_packed_rows(packed: list[RegistryRow]) -> None:
    first = packed[0][0]
    data = pack(first, packed)
    assert unpack_block(first, data) == packed
    assert [find_row(one[0], unpack_lines(first, data)) for one in packed] == packed
    assert unpack_lines(first, data) == [write_block_line(one) for one in packed]


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
        find_row(KEY, unpack_lines(KEY, data))


@given(st.lists(st.integers(1, 16_384), max_size=80))
def test_blocks_keep_their_limits(lengths: list[int]) -> None:
    long = [b"u" * length for length in lengths]
    cut = list(split_lines(long))
    assert [one for block in cut for one in block] == long
    assert all(0 < len(block) <= MAX_ROWS for block in cut)
    assert all(sum(map(len, block)) <= MAX_BYTES for block in cut if len(block) > 1)


def test_a_block_of_another_format_is_damage() -> None:
    body = bytes([FORMAT_VERSION + 1]) + pack(KEY, [row()])[5:]
    data = crc32(body, crc32(KEY.encode())).to_bytes(4, "little") + body
    with pytest.raises(DamagedEntry, match="unknown format: 2"):
        unpack_block(KEY, data)


@pytest.mark.parametrize("date", [-1, LAST_DATE + 1, 10**30])
def test_a_date_that_is_not_possible_is_damage(date: int) -> None:
    data = pack(KEY, [(KEY, date, "Crossref", "https://a.example/")])
    for read in (lambda: unpack_block(KEY, data), lambda: find_row(KEY, unpack_lines(KEY, data))):
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


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://a.example/1?b=%3C", "https://a.example/1?b=%3C"),
        ('https://a.example/"', None),
        ("https://a.example/ü", None),
        ("javascript:alert(1)", None),
    ],
)
def test_an_entry_has_its_target_without_parsing_if_it_can_be_sent_as_it_is(url: str, target: str | None) -> None:
    answer = to_entry((KEY, 1, "Crossref", url)).answer
    assert (json.loads(answer.values)[0]["data"]["value"], answer.target) == (url, target)
