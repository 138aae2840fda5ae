"""The blocks of registry records in a SQLite file: finding, reading and changing them in a transaction of the caller.

A block has the records from its first key up to the first key of the next block. Every function raises sqlite3.Error.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from app.doi.name import MAX_NAME_BYTES
from app.errors import DamagedEntry, StoreError
from app.features.registry.wire import RegistryRow, find_row, pack_block, split_rows, unpack_block

#: The block of a key: its first key, the number of its records, and its data.
SELECT_BLOCK: Final = "SELECT first, records, data FROM registry_blocks WHERE first <= ? ORDER BY first DESC LIMIT 1"
# SQLite sorts blobs, which a damaged row can have as its key, after all text.
_LATER: Final = "FROM registry_blocks WHERE first > ? AND first < x''"
_NEXT: Final = f"SELECT first, records, data {_LATER} ORDER BY first LIMIT 1"
_ALL_LATER: Final = f"SELECT first, data {_LATER} ORDER BY first"
_NEXT_KEY: Final = f"SELECT min(first) {_LATER}"
_PUT: Final = (
    "INSERT INTO registry_blocks VALUES (?, ?, ?)"
    " ON CONFLICT (first) DO UPDATE SET records = excluded.records, data = excluded.data"
)
_DELETE: Final = "DELETE FROM registry_blocks WHERE first = ?"
_SUM: Final = "SELECT ifnull(sum(records), 0) FROM registry_blocks WHERE first >= ? AND first < ?"
_ADD: Final = "UPDATE registry_total SET records = max(0, records + ?)"
#: `registry_total` is the number of records, because to count 300 million takes minutes. `imports` has the finished
#: parts of each import.
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS registry_blocks (first TEXT PRIMARY KEY, records INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS registry_total (id INTEGER PRIMARY KEY CHECK (id = 1), records INTEGER NOT NULL);
INSERT OR IGNORE INTO registry_total VALUES (1, 0);
CREATE TABLE IF NOT EXISTS imports (
    import TEXT NOT NULL, part TEXT NOT NULL, note TEXT NOT NULL, PRIMARY KEY (import, part)
) WITHOUT ROWID;
"""
#: Added to a prefix, after every key with that prefix: the longest name, of the last code point.
LAST: Final = "\U0010ffff" * (MAX_NAME_BYTES // 4)
_KEY: Final = itemgetter(0)


#: Counts of the records of one write. new: names that the table did not have; changed: with another URL or agency than
#: before; same: with the same ones, and perhaps a later date; older: than the one in the table, which stays.
WriteCounts = Counter[str]


@dataclass(slots=True)
class _Block:
    """A block as the file has it. `rows` is empty if the data is damaged; `records` is their number when written."""

    #: None if the table is empty.
    first: str | None
    records: int
    rows: dict[str, RegistryRow]


def create_tables(connection: sqlite3.Connection, _: float) -> None:
    """Create the tables that the file does not have. An earlier release ignores them."""
    connection.executescript(_TABLES)


def find(connection: sqlite3.Connection, key: str) -> RegistryRow | None:
    """The record of a key. Also raises DamagedEntry."""
    block = connection.execute(SELECT_BLOCK, (key,)).fetchone()
    return None if block is None else find_row(key, block[0], block[2])


def read_rows(connection: sqlite3.Connection, after: str = "", start: str = "") -> Iterator[RegistryRow]:
    """The records whose key follows `after` and is `start` or follows it, in order. Damaged blocks are left out."""
    lowest = max(after, start)
    block = connection.execute(SELECT_BLOCK, (lowest,)).fetchone()
    if block is not None:
        lowest = block[0]
        yield from (row for row in _try_unpack(block[0], block[2]) if row[0] > after and row[0] >= start)
    for first, data in connection.execute(_ALL_LATER, (lowest,)):
        yield from (row for row in _try_unpack(first, data) if row[0] > after and row[0] >= start)


def write(connection: sqlite3.Connection, rows: Sequence[RegistryRow]) -> tuple[list[str], WriteCounts]:
    """Write rows in the order of their keys. A later date wins. Returns the keys that changed in the file."""
    total, changed = WriteCounts(), list[str]()
    for block, part in _group(connection, rows):
        keys, counts = _merge(block.rows, part)
        total.update(counts)
        changed += keys
        if keys:
            _replace(connection, block)
    return changed, total


def delete(connection: sqlite3.Connection, keys: Sequence[str], *, skips_newer: bool = False) -> int:
    """Delete the records of keys, and return their number.

    With `skips_newer`, blocks of another format version stay as they are. They answer no name.
    """
    gone = 0
    rows: list[RegistryRow] = [(key, 0, "", "") for key in sorted(set(keys))]
    for block, part in _group(connection, rows, skips_newer=skips_newer):
        found = [row[0] for row in part if block.rows.pop(row[0], None)]
        gone += len(found)
        if found:
            _replace(connection, block)
    return gone


def count(connection: sqlite3.Connection, prefix: str) -> int:
    """The number of records whose key begins with `prefix`. Reads two blocks, and the numbers of the others."""
    bounds = (prefix, prefix + LAST)
    (total,) = connection.execute(_SUM, bounds).fetchone()
    start = connection.execute(SELECT_BLOCK, (prefix,)).fetchone()
    if start is not None and start[0] < prefix:
        total += sum(row[0].startswith(prefix) for row in _try_unpack(start[0], start[2]))
    end = connection.execute(SELECT_BLOCK, bounds[1:]).fetchone()
    if end is not None and end[0] >= prefix:
        total -= sum(not row[0].startswith(prefix) for row in _try_unpack(end[0], end[2]))
    return int(total)


def count_known(connection: sqlite3.Connection, keys: Sequence[str]) -> int:
    """The number of these sorted keys that have a record."""
    rows: list[RegistryRow] = [(key, 0, "", "") for key in keys]
    return sum(sum(row[0] in block.rows for row in part) for block, part in _group(connection, rows))


def _group(
    connection: sqlite3.Connection, rows: Sequence[RegistryRow], *, skips_newer: bool = False
) -> Iterator[tuple[_Block, Sequence[RegistryRow]]]:
    """The rows by the block that they belong to. The caller may replace a block before it takes the next one."""
    at = 0
    while at < len(rows):
        key = rows[at][0]
        # Rows before the first block join it.
        found = connection.execute(SELECT_BLOCK, (key,)).fetchone() or connection.execute(_NEXT, (key,)).fetchone()
        block = _Block(None, 0, {}) if found is None else _read_block(*found, skips_newer=skips_newer)
        (bound,) = connection.execute(_NEXT_KEY, (max(key, block.first or key),)).fetchone()
        end = len(rows) if bound is None else bisect_left(rows, bound, lo=at, key=_KEY)
        yield block, rows[at:end]
        at = end


def _merge(known: dict[str, RegistryRow], rows: Sequence[RegistryRow]) -> tuple[list[str], WriteCounts]:
    """Add rows to those of a block. Returns the keys whose row is another one now."""
    counts, keys = WriteCounts(), list[str]()
    for row in rows:
        key, date, agency, url = row
        before = known.get(key)
        if before is None:
            counts["new"] += 1
        elif date < before[1]:
            counts["older"] += 1
            continue
        elif (agency, url) != before[2:]:
            counts["changed"] += 1
        else:
            counts["same"] += 1
            if date == before[1]:
                continue
        known[key] = row
        keys.append(key)
    return keys, counts


def _replace(connection: sqlite3.Connection, block: _Block) -> None:
    """Write the rows of a block in place of what the file has, in as many blocks as they need."""
    rows = sorted(block.rows.values(), key=_KEY)
    puts = [(piece[0][0], len(piece), pack_block(piece[0][0], piece)) for piece in split_rows(rows)]
    if block.first is not None and (not puts or puts[0][0] != block.first):
        connection.execute(_DELETE, (block.first,))
    connection.executemany(_PUT, puts)
    if len(rows) != block.records:
        connection.execute(_ADD, (len(rows) - block.records,))


def _read_block(first: str, records: object, data: object, *, skips_newer: bool) -> _Block:
    """A block with its rows by their key. Another format version has no rows, or is a StoreError."""
    number = records if isinstance(records, int) else 0
    try:
        rows = unpack_block(first, data)
    except DamagedEntry:
        return _Block(first, number, {})
    if rows is None and skips_newer:
        return _Block(first, number, {})
    if rows is None:
        raise StoreError(f"A newer doi-proxy wrote the registry records after {first!r}; use it to change them.")
    return _Block(first, number, {row[0]: row for row in rows})


def _try_unpack(first: str, data: object) -> list[RegistryRow]:
    try:
        return unpack_block(first, data) or []
    except DamagedEntry:
        return []
