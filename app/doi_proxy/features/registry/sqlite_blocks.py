"""The blocks of registry records in a SQLite file: finding, reading and changing them in a transaction of the caller.

A block has the records from its first key up to the first key of the next block. Every function raises sqlite3.Error.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import Final, Self
from zlib import crc32

from doi_names.name import MAX_NAME_BYTES
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.features.registry.json_values import LAST_DATE, RegistryRow
from doi_proxy.features.sqlite import file
from doi_proxy.features.sqlite.rows import REGISTRY_CHANGED
from doi_proxy.features.sqlite.writer import announce
from doi_proxy.store.stored_entry import compress, decompress

#: Compresses the text of a block into what `doi_proxy.store.stored_entry.decompress` reads.
Compress = Callable[[bytes], bytes]

#: Limits of a block. A look-up decompresses one block, in 15 µs. Blocks twice as long take 21 µs, and the file does not
#: become smaller.
MAX_ROWS: Final = 32
MAX_BYTES: Final = 16_384
#: The version of the format. Version 1 is compressed with dictionary 1.
FORMAT_VERSION: Final = 1
#: CRC-32 of the first key and of what follows: version, compressed text.
_HEAD: Final = Struct("<IB")
_CHECK_BYTES: Final = 4
_VERSION: Final = bytes([FORMAT_VERSION])


def write_block_line(row: RegistryRow) -> bytes:
    """The line of a row in the text of a block: its fields with tabs between them. No field has a control character."""
    key, date, agency, url = row
    return f"{key}\t{date}\t{agency}\t{url}".encode()


def split_lines(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Lines in pieces of about the same number, each within the limits of a block. A long one is alone in its block."""
    pieces = -(-len(lines) // MAX_ROWS)
    for piece in range(pieces):
        block = lines[piece * len(lines) // pieces : (piece + 1) * len(lines) // pieces]
        # To join the lines takes half as long as to add their lengths.
        if len(block) > 1 and len(b"".join(block)) > MAX_BYTES:
            half = len(block) // 2
            yield from split_lines(block[:half])
            yield from split_lines(block[half:])
        else:
            yield block


def pack_block(first: str, lines: Sequence[bytes], compress: Compress = compress) -> bytes:
    """Serialize the lines of 1 to MAX_ROWS rows in the order of their keys, without `first`, the key of the block."""
    body = _VERSION + compress(b"\n" + b"\n".join(lines))
    return _checksum(first, body).to_bytes(_CHECK_BYTES, "little") + body


def unpack_lines(first: str, data: object) -> list[bytes]:
    """The lines that `pack_block` wrote for this first key. Raises DamagedEntry.

    Their fields are not read: a change of one record need not know the others.
    """
    return _read_text(first, data).split(b"\n")[1:]


def find_line(lines: Sequence[bytes], key: bytes, start: int = 0) -> tuple[int, bool]:
    """The place of a key among lines from `start` on, and whether its line is there.

    The lines have the order of their keys: the tab after a key is less than any byte of a key, and the bytes of UTF-8
    have the order of their code points.
    """
    head = key + b"\t"
    at = bisect_left(lines, head, lo=start)
    return at, at < len(lines) and lines[at].startswith(head)


def read_line(first: str, line: bytes) -> RegistryRow:
    """The row of a line in the block with this first key. Raises DamagedEntry."""
    try:
        key, date, agency, url = line.decode().split("\t")
        row = key, int(date), agency, url
    except ValueError as error:
        raise DamagedEntry(f"The registry records after {first!r} are damaged: {error}.") from error
    # A later date would be an error when it is written as text.
    if not 0 <= row[1] <= LAST_DATE:
        raise DamagedEntry(f"The registry records after {first!r} are damaged: the date {row[1]} is not possible.")
    return row


def unpack_block(first: str, data: object) -> list[RegistryRow]:
    """Read the rows that `pack_block` wrote for this first key. Raises DamagedEntry."""
    return [read_line(first, line) for line in unpack_lines(first, data)]


def find_row(key: str, lines: Sequence[bytes]) -> RegistryRow | None:
    """The row of a key among the lines of its block. Raises DamagedEntry."""
    at, is_known = find_line(lines, key.encode(errors="surrogatepass"))
    return read_line(key, lines[at]) if is_known else None


def find_keys(keys: Sequence[str], first: str, data: object) -> list[str]:
    """The keys that a block has. Raises DamagedEntry."""
    known = {line.partition(b"\t")[0] for line in _read_text(first, data).split(b"\n")}
    return [key for key in keys if key.encode() in known]


def _read_text(first: str, data: object) -> bytes:
    # A damaged SQLite row can have any type.
    if not isinstance(data, bytes) or len(data) < _HEAD.size:
        raise DamagedEntry(f"The registry records after {first!r} are damaged: too short, or not bytes.")
    check, version = _HEAD.unpack_from(data)
    if _checksum(first, data[_CHECK_BYTES:]) != check:
        raise DamagedEntry(f"The registry records after {first!r} are damaged: wrong checksum.")
    if version != FORMAT_VERSION:
        raise DamagedEntry(f"The registry records after {first!r} have an unknown format: {version}.")
    try:
        return decompress(data[_HEAD.size :])
    except ValueError as error:
        raise DamagedEntry(f"The registry records after {first!r} are damaged: {error}.") from error


def _checksum(first: str, body: bytes) -> int:
    return crc32(body, crc32(first.encode(errors="surrogatepass")))


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
_PUT: Final = (
    "INSERT INTO registry_blocks VALUES (?, ?, ?)"
    " ON CONFLICT (first) DO UPDATE SET records = excluded.records, data = excluded.data"
)
#: The blocks of the keys in a list of JSON, each with the places of its keys in the list, that of the first key first.
_BLOCKS_OF: Final = (
    "SELECT block, places, data FROM registry_blocks JOIN"
    " (SELECT (SELECT first FROM registry_blocks WHERE first <= value ORDER BY first DESC LIMIT 1) AS block,"
    " group_concat(key) AS places, min(key) AS place FROM json_each(?) GROUP BY block)"
    " ON first = block ORDER BY place LIMIT ?"
)
#: Two blocks, because the first key of a block can be the only one before a key.
_EARLIER: Final = "SELECT first, data FROM registry_blocks WHERE first < ? ORDER BY first DESC LIMIT 2"
#: Blocks that are read for the candidates of one name.
_MAX_NEAR_BLOCKS: Final = 64
#: Keys before a key, and after it.
_NEIGHBOURS: Final = 2
_SUM: Final = "SELECT ifnull(sum(records), 0) FROM registry_blocks WHERE first >= ? AND first < ?"
#: `registry_total` is the number of records, because to count 300 million takes minutes.
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS registry_blocks (first TEXT PRIMARY KEY, records INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS registry_total (id INTEGER PRIMARY KEY CHECK (id = 1), records INTEGER NOT NULL);
INSERT OR IGNORE INTO registry_total VALUES (1, 0);
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
    #: The texts of the records, in the order of their keys.
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

    def replace(self, block: _Block, compress: Compress) -> None:
        """Add the lines of a block in place of what the file has, in as many blocks as they need."""
        is_kept = False
        for lines in split_lines(block.lines):
            first = lines[0].partition(b"\t")[0].decode()
            is_kept = is_kept or first == block.first
            self._puts.append((first, len(lines), pack_block(first, lines, compress)))
        if block.first is not None and not is_kept:
            self._gone.append((block.first,))
        self._added += len(block.lines) - block.records

    def execute(self, connection: sqlite3.Connection) -> None:
        """Write all of them."""
        connection.executemany("DELETE FROM registry_blocks WHERE first = ?", self._gone)
        connection.executemany(_PUT, self._puts)
        if self._added:
            connection.execute("UPDATE registry_total SET records = max(0, records + ?)", (self._added,))


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables that the file does not have."""
    connection.executescript(_TABLES)


def find(connection: sqlite3.Connection, key: str) -> RegistryRow | None:
    """The record of a key. Also raises DamagedEntry."""
    block = connection.execute(SELECT_BLOCK, (key,)).fetchone()
    return None if block is None else find_row(key, unpack_lines(block[0], block[2]))


def find_near(
    connection: sqlite3.Connection, key: str, candidates: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """The candidates with a record, and the keys next to `key`: before and after it, the nearest first.

    The likeliest candidates come first in `candidates`: at most _MAX_NEAR_BLOCKS blocks are read.
    """
    found: list[str] = []
    listed = json.dumps(candidates, ensure_ascii=False)
    for first, places, data in connection.execute(_BLOCKS_OF, (listed, _MAX_NEAR_BLOCKS)):
        keys = [candidates[int(place)] for place in places.split(",")]
        with suppress(DamagedEntry):
            found += find_keys(keys, first, data)
    earlier = connection.execute(_EARLIER, (key,))
    before = [row_key for first, data in earlier for row_key, *_ in reversed(_try_unpack(first, data)) if row_key < key]
    after = [row_key for row_key, *_ in islice(read_rows(connection, key), _NEIGHBOURS)]
    return found, before[:_NEIGHBOURS], after


def read_rows(connection: sqlite3.Connection, after: str = "", start: str = "") -> Iterator[RegistryRow]:
    """The records whose key follows `after` and is `start` or follows it, in order. Damaged blocks are left out."""
    for first, _, data in connection.execute(_SELECT_FROM, (max(after, start), _ALL)):
        yield from (row for row in _try_unpack(first, data) if row[0] > after and row[0] >= start)


def write(connection: sqlite3.Connection, rows: Sequence[RegistryRow], compress: Compress) -> tuple[bool, WriteCounts]:
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
    rows: list[RegistryRow] = [(key, 0, "", "") for key in sorted(set(keys))]
    for block, part in _group(connection, rows):
        places = [at for at, is_known in (find_line(block.lines, row[0].encode()) for row in part) if is_known]
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
    rows: list[RegistryRow] = [(key, 0, "", "") for key in keys]
    return sum(
        sum(find_line(block.lines, row[0].encode())[1] for row in part) for block, part in _group(connection, rows)
    )


def _group(
    connection: sqlite3.Connection, rows: Sequence[RegistryRow]
) -> Iterator[tuple[_Block, Sequence[RegistryRow]]]:
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
        # Limit of the blocks that one query reads.
        ahead = min(4 * used, 64)


def _merge(block: _Block, rows: Sequence[RegistryRow], outcomes: list[str]) -> bool:
    """Merge rows into the lines of a block, and append their outcomes. Returns whether a line has changed."""
    has_changed, lines, at = False, block.lines, 0
    for row in rows:
        at, is_known = find_line(lines, row[0].encode(), at)
        line = write_block_line(row)
        outcome, is_newer = _compare(row, line, lines[at]) if is_known else ("new", True)
        outcomes.append(outcome)
        if is_newer:
            if is_known:
                lines[at] = line
            else:
                lines.insert(at, line)
            has_changed = True
    return has_changed


def _compare(row: RegistryRow, line: bytes, known: bytes) -> tuple[str, bool]:
    """The outcome of a row, and whether its own `line` replaces the `known` one of its key."""
    if line == known:
        return "same", False
    try:
        _, date, agency, url = read_line(row[0], known)
    except DamagedEntry:
        return "new", True
    if row[1] < date:
        return "older", False
    return ("same", row[1] > date) if (agency, url) == row[2:] else ("changed", True)


def _read_block(first: str, records: object, data: object) -> _Block:
    """A block with its lines. A damaged one has none."""
    number = records if isinstance(records, int) else 0
    try:
        return _Block(first, number, unpack_lines(first, data))
    except DamagedEntry:
        return _Block(first, number, [])


def _try_unpack(first: str, data: object) -> list[RegistryRow]:
    try:
        return unpack_block(first, data)
    except DamagedEntry:
        return []


#: Limit of the records in one call of `write`. 10,000 take about 30 ms, during which other writers wait.
MAX_BATCH: Final = 20_000
#: Records that one transaction of `forget_prefix` deletes.
_ROWS: Final = 10_000
#: Records in one page of `pages`.
_PAGE: Final = 1_000
_ENTRIES: Final = "SELECT count(*) FROM entries WHERE key IN (SELECT value FROM json_each(?))"
#: Pages of the write-ahead log after which it is copied into the file: 64 MiB. A checkpoint waits for the disk twice.
_CHECKPOINT: Final = 16_384


class RegistryTable:
    """The registry records of one file, for an importer. Every method raises StoreError. Proxies may use the file."""

    def __init__(self, path: Path, *, now: float) -> None:
        """Open the store at `path`, and create it if it is missing. `now` is in seconds since the epoch."""
        file.prepare(path, now, create_tables)
        #: The file of the store.
        self.path = path
        #: What compresses the blocks that are written.
        self.compress: Compress = compress
        with self._translate_errors():
            self._connection = file.connect(path, timeout=file.WRITE_TIMEOUT)
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, rows: Sequence[RegistryRow]) -> WriteCounts:
        """Write at most MAX_BATCH records, sorted by key, in one transaction. A later date wins over an earlier one.

        In any order of the calls the table is the same, but keys that rise from call to call are written several times
        as fast as keys at random.
        """
        if len(rows) > MAX_BATCH:
            raise ValueError(f"{len(rows)} records are more than {MAX_BATCH}")
        with self._transaction():
            has_changed, counts = write(self._connection, rows, self.compress)
            if has_changed:
                announce(self._connection, (REGISTRY_CHANGED,))
        return counts

    def find(self, key: str) -> RegistryRow | None:
        """The record of a key. Also raises DamagedEntry."""
        with self._translate_errors():
            return find(self._connection, key)

    def count(self) -> int:
        """The number of records."""
        with self._translate_errors():
            (records,) = self._connection.execute("SELECT records FROM registry_total").fetchone() or (0,)
        return records if isinstance(records, int) else 0

    def pages(self, prefix: str = "", *, after: str = "") -> Iterator[list[RegistryRow]]:
        """The records whose key begins with `prefix` and follows `after`, in the order of their keys.

        Damaged records are left out. Records that are written or forgotten meanwhile may be missing.
        """
        while True:
            with self._translate_errors():
                page = list(islice(read_rows(self._connection, after, prefix), _PAGE))
            rows = [row for row in page if row[0].startswith(prefix)]
            if rows:
                yield rows
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def forget(self, keys: Iterable[str]) -> int:
        """Delete the records of keys, and return their number."""
        with self._transaction():
            announce(self._connection, (REGISTRY_CHANGED,))
            return delete(self._connection, list(keys))

    def forget_prefix(self, prefix: str) -> int:
        """Delete the records whose key begins with `prefix`, in transactions of limited size. Returns their number."""
        total = 0
        while True:
            with self._transaction():
                rows = list(islice(read_rows(self._connection, start=prefix), _ROWS))
                keys = [key for key, *_ in rows if key.startswith(prefix)]
                total += delete(self._connection, keys)
                announce(self._connection, (REGISTRY_CHANGED,))
            if len(keys) < _ROWS:
                return total

    def count_entries(self, keys: Sequence[str]) -> int:
        """The number of these keys that have an entry."""
        with self._translate_errors():
            listed = json.dumps(keys, ensure_ascii=False)
            return int(self._connection.execute(_ENTRIES, (listed,)).fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        with self._translate_errors():
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._translate_errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, OverflowError, UnicodeError) as error:
            if file.is_damage(error):
                file.mark_damaged(self.path)
            raise StoreError(f"The registry records of {self.path} failed: {error}.") from error
