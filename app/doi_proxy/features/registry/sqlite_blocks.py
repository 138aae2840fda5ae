"""The blocks of registry records in a SQLite file: finding, reading and changing them in a transaction of the caller.

A block has the records from its first key up to the first key of the next block. Every function raises sqlite3.Error.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Final

from doi_names.name import MAX_NAME_BYTES
from doi_proxy.errors import DamagedEntry
from doi_proxy.features.registry import wire
from doi_proxy.store.compression import compress

#: The block of a key: its first key, the number of its records, and its data.
SELECT_BLOCK: Final = "SELECT first, records, data FROM registry_blocks WHERE first <= ? ORDER BY first DESC LIMIT 1"
#: The block of a key and the blocks after it. A key before the first block belongs to that block. SQLite sorts blobs,
#: which a damaged row can have as its key, after all text.
_SELECT_FROM: Final = (
    "SELECT first, records, data FROM registry_blocks WHERE first < x'' AND first >="
    " ifnull((SELECT max(first) FROM registry_blocks WHERE first <= ?), '') ORDER BY first LIMIT ?"
)
#: No limit of the blocks (SQLite, "The LIMIT clause").
_ALL: Final = -1
#: Limit of the blocks that one query reads.
_MAX_AHEAD: Final = 64
_PUT: Final = (
    "INSERT INTO registry_blocks VALUES (?, ?, ?)"
    " ON CONFLICT (first) DO UPDATE SET records = excluded.records, data = excluded.data"
)
#: The blocks of the keys in a list of JSON, each with the places of its keys in the list, that of the first key first.
_BLOCKS_OF: Final = (
    "SELECT (SELECT first FROM registry_blocks WHERE first <= value ORDER BY first DESC LIMIT 1) AS block,"
    " group_concat(key) FROM json_each(?) GROUP BY block HAVING block IS NOT NULL ORDER BY min(key) LIMIT ?"
)
#: Two blocks, because the first key of a block can be the only one before a key.
_EARLIER: Final = "SELECT first, data FROM registry_blocks WHERE first < ? ORDER BY first DESC LIMIT 2"
#: Blocks that are read for the candidates of one name.
_MAX_NEAR_BLOCKS: Final = 64
#: Keys before a key, and after it.
_NEIGHBOURS: Final = 2
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
    """A block as the file has it. `lines` is empty if the data is damaged; `records` is their number when written."""

    #: None if the table is empty.
    first: str | None
    records: int
    #: The texts of the records, in the order of their keys. See wire.py.
    lines: list[bytes]


class _Writes:
    """The blocks that a transaction writes at its end.

    Between reads and compression, each statement would find the processor's caches full of their data: a block took
    50 µs to write, and takes 27 when all are written at the end.
    """

    def __init__(self) -> None:
        self._gone: list[tuple[str]] = []
        self._puts: list[tuple[str, int, bytes]] = []
        self._added = 0

    def replace(self, block: _Block, compress: wire.Compress) -> None:
        """Add the lines of a block in place of what the file has, in as many blocks as they need."""
        is_kept = False
        for lines in wire.split_lines(block.lines):
            first = lines[0].partition(b"\t")[0].decode()
            is_kept = is_kept or first == block.first
            self._puts.append((first, len(lines), wire.pack_block(first, lines, compress)))
        if block.first is not None and not is_kept:
            self._gone.append((block.first,))
        self._added += len(block.lines) - block.records

    def execute(self, connection: sqlite3.Connection) -> None:
        """Write all of them."""
        connection.executemany(_DELETE, self._gone)
        connection.executemany(_PUT, self._puts)
        if self._added:
            connection.execute(_ADD, (self._added,))


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables that the file does not have."""
    connection.executescript(_TABLES)


def find(connection: sqlite3.Connection, key: str) -> wire.RegistryRow | None:
    """The record of a key. Also raises DamagedEntry."""
    block = connection.execute(SELECT_BLOCK, (key,)).fetchone()
    return None if block is None else wire.find_row(key, block[0], block[2])


def find_near(
    connection: sqlite3.Connection, key: str, candidates: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """The candidates with a record, and the keys next to `key`: before and after it, the nearest first.

    The likeliest candidates come first in `candidates`: at most _MAX_NEAR_BLOCKS blocks are read.
    """
    found: list[str] = []
    listed = json.dumps(candidates, ensure_ascii=False)
    for first, places in connection.execute(_BLOCKS_OF, (listed, _MAX_NEAR_BLOCKS)).fetchall():
        keys = [candidates[int(place)] for place in places.split(",")]
        for (data,) in connection.execute("SELECT data FROM registry_blocks WHERE first = ?", (first,)):
            with suppress(DamagedEntry):
                found += wire.find_keys(keys, first, data)
    earlier = connection.execute(_EARLIER, (key,))
    before = [row_key for first, data in earlier for row_key, *_ in reversed(_try_unpack(first, data)) if row_key < key]
    after = [row_key for row_key, *_ in islice(read_rows(connection, key), _NEIGHBOURS)]
    return found, before[:_NEIGHBOURS], after


def read_rows(connection: sqlite3.Connection, after: str = "", start: str = "") -> Iterator[wire.RegistryRow]:
    """The records whose key follows `after` and is `start` or follows it, in order. Damaged blocks are left out."""
    for first, _, data in connection.execute(_SELECT_FROM, (max(after, start), _ALL)):
        yield from (row for row in _try_unpack(first, data) if row[0] > after and row[0] >= start)


def write(
    connection: sqlite3.Connection, rows: Sequence[wire.RegistryRow], compress: wire.Compress
) -> tuple[bool, WriteCounts]:
    """Write rows in the order of their keys. A later date wins. Returns whether a record in the file changed."""
    outcomes, has_changed, writes = list[str](), False, _Writes()
    for block, part in _group(connection, rows):
        if _merge(block, part, outcomes):
            has_changed = True
            writes.replace(block, compress)
    writes.execute(connection)
    return has_changed, WriteCounts(outcomes)


def delete(connection: sqlite3.Connection, keys: Sequence[str]) -> int:
    """Delete the records of keys, and return their number."""
    gone, writes = 0, _Writes()
    rows: list[wire.RegistryRow] = [(key, 0, "", "") for key in sorted(set(keys))]
    for block, part in _group(connection, rows):
        places = [at for at, is_known in (wire.find_line(block.lines, row[0].encode()) for row in part) if is_known]
        gone += len(places)
        for at in reversed(places):
            del block.lines[at]
        if places:
            writes.replace(block, compress)
    writes.execute(connection)
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
    rows: list[wire.RegistryRow] = [(key, 0, "", "") for key in keys]
    return sum(
        sum(wire.find_line(block.lines, row[0].encode())[1] for row in part) for block, part in _group(connection, rows)
    )


def _group(
    connection: sqlite3.Connection, rows: Sequence[wire.RegistryRow]
) -> Iterator[tuple[_Block, Sequence[wire.RegistryRow]]]:
    """The rows by the block that they belong to. The caller may replace blocks at any time."""
    at, ahead = 0, 1
    while at < len(rows):
        found = connection.execute(_SELECT_FROM, (rows[at][0], ahead + 1)).fetchall()
        if not found:
            yield _Block(None, 0, []), rows[at:]
            return
        # The last block only bounds the one before it, unless no block follows.
        bounds: list[str | None] = [first for first, _, _ in found[1:]]
        if len(found) <= ahead:
            bounds.append(None)
        used = 0
        for content, bound in zip(found, bounds, strict=False):
            # The first block has this row in any case.
            start = at + (used == 0)
            end = len(rows) if bound is None else bisect_left(rows, bound, lo=start, key=_KEY)
            if end > at:
                yield _read_block(*content), rows[at:end]
                used, at = used + 1, end
        # A large delta touches nearly every block, a small one few. To find a block takes as long as to read ten.
        ahead = min(4 * used, _MAX_AHEAD)


def _merge(block: _Block, rows: Sequence[wire.RegistryRow], outcomes: list[str]) -> bool:
    """Merge rows into the lines of a block, and append their outcomes. Returns whether a line has changed."""
    has_changed, lines, at = False, block.lines, 0
    for row in rows:
        at, is_known = wire.find_line(lines, row[0].encode(), at)
        line = wire.write_block_line(row)
        outcome, is_newer = _compare(row, line, lines[at]) if is_known else ("new", True)
        outcomes.append(outcome)
        if is_newer:
            if is_known:
                lines[at] = line
            else:
                lines.insert(at, line)
            has_changed = True
    return has_changed


def _compare(row: wire.RegistryRow, line: bytes, known: bytes) -> tuple[str, bool]:
    """The outcome of a row, and whether its own `line` replaces the `known` one of its key."""
    if line == known:
        return "same", False
    try:
        _, date, agency, url = wire.read_line(row[0], known)
    except DamagedEntry:
        return "new", True
    if row[1] < date:
        return "older", False
    return ("same", row[1] > date) if (agency, url) == row[2:] else ("changed", True)


def _read_block(first: str, records: object, data: object) -> _Block:
    """A block with its lines. A damaged one has none."""
    number = records if isinstance(records, int) else 0
    try:
        return _Block(first, number, wire.unpack_lines(first, data))
    except DamagedEntry:
        return _Block(first, number, [])


def _try_unpack(first: str, data: object) -> list[wire.RegistryRow]:
    try:
        return wire.unpack_block(first, data)
    except DamagedEntry:
        return []
