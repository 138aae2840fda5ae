"""The log of what a SQLite store wrote, for its replicas. The log is bounded: old rows are deleted.

A row names what changed. A delta reads the record itself from its table (see sqlite_change_pages.py), so a record that
was written several times is sent once, as it is now.

An import of millions of registry records has a row for each range of keys that it wrote. If many records of the range
stayed as they were, a second table has the keys of the others, compressed: about 9 bytes each where a row takes 48. An
earlier release does not know that table and sends all records of the range. So does this one if the keys are damaged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from math import inf
from struct import Struct
from typing import Final
from zlib import crc32

from app.cache.entry import Entry
from app.cache.purges import NOT_FOUND, Purges, scopes_of
from app.features.sqlite.feature_tables import Table, Written
from app.features.store_compression import compress, decompress

#: Limit of the rows of the log. A row takes about 40 bytes.
MAX_ROWS: Final = 1_000_000
#: Rows beyond the limit before the oldest are deleted.
SLACK: Final = 1_000
#: Between the first and the last key of a range, and between keys. A name has no control characters.
RANGE_SEPARATOR: Final = "\n"
#: The least registry records that are logged as a range. Fewer have a row each.
MIN_RANGE: Final = 32
#: Limit of the keys of a range. A replica gets one range in several pages.
MAX_RANGE: Final = 5_000
#: Limit of the bytes of all keys of ranges, about 28 million keys. Beyond it, the oldest quarter of the log is deleted.
MAX_KEY_BYTES: Final = 256 * 1024 * 1024
#: CRC-32 of the keys before they are compressed.
_CHECK: Final = Struct("<I")
_TOTAL: Final = "SELECT total FROM change_log_keys ORDER BY number"

#: `origin` identifies the log, and says since when it has been complete, in seconds since the epoch. `total` is the sum
#: of the bytes of `keys` in this row and in all rows before it.
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS change_log (
    number INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL, key TEXT NOT NULL, at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS change_log_origin (
    id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL, at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS change_log_keys (number INTEGER PRIMARY KEY, total INTEGER NOT NULL, keys BLOB NOT NULL);
"""


def create_log(connection: sqlite3.Connection, now: float) -> None:
    """Create the tables of the log if the file does not have them. An earlier release ignores them."""
    connection.executescript(_TABLES)
    connection.execute("INSERT OR IGNORE INTO change_log_origin VALUES (1, lower(hex(randomblob(8))), ?)", (now,))


class LoggedChange(IntEnum):
    """What a row of the log says about its key."""

    PUT = 0
    PURGE = 1
    REGISTRY = 2
    #: Registry records from a first key to a last one changed: those of `change_log_keys`, else all.
    REGISTRY_RANGE = 3
    FORGOTTEN = 4


def _log_batch(connection: sqlite3.Connection, written: Written) -> None:
    purged = dict(written.purged)
    # A replica knows the scopes of names, prefixes and everything. Of this one it gets the names that were deleted.
    purged.pop(NOT_FOUND, None)
    for key in written.deleted:
        if written.known[key] is not None:
            purged.setdefault(key, written.now)
    log_purges(connection, tuple(purged.items()), written.known, written.purges)
    log_changes(connection, LoggedChange.PUT, [entry.key for entry in written.entries], written.now)


def log_changes(connection: sqlite3.Connection, kind: LoggedChange, keys: Iterable[str], at: float) -> None:
    """Add rows in the transaction under way, and delete the oldest beyond MAX_ROWS."""
    rows = [(kind, key, at) for key in keys]
    if not rows:
        return
    connection.executemany("INSERT INTO change_log (kind, key, at) VALUES (?, ?, ?)", rows)
    oldest, newest = connection.execute(
        "SELECT (SELECT number FROM change_log ORDER BY number LIMIT 1), max(number) FROM change_log"
    ).fetchone()
    if newest - oldest >= MAX_ROWS + SLACK:
        _forget_up_to(connection, newest - MAX_ROWS)


def _forget_up_to(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("DELETE FROM change_log WHERE number <= ?", (number,))
    connection.execute("DELETE FROM change_log_keys WHERE number <= ?", (number,))


def log_purges(
    connection: sqlite3.Connection,
    purged: Sequence[tuple[str, float]],
    known: Mapping[str, Entry | None],
    purges: Purges,
) -> None:
    """Add the purges of a batch: scopes and times. `known` has the entries that it deletes, `purges` earlier purges.

    The purge of a prefix or of everything deletes its entries one by one. Those have no rows, because the row of the
    scope says the same, and a large purge would fill the log.
    """
    for scope, at in purged:
        entry = known.get(scope)
        if entry is None or not _is_purged_with_others(entry, purges, at):
            log_changes(connection, LoggedChange.PURGE, [scope], at)


def _is_purged_with_others(entry: Entry, purges: Purges, at: float) -> bool:
    _, *scopes = scopes_of(entry.key)
    return any(entry.fetched_at < purges.get(scope, -inf) <= at for scope in scopes)


def log_registry(connection: sqlite3.Connection, keys: Sequence[str], at: float, *, is_dense: bool) -> None:
    """Add written registry records, in the order of their keys. `is_dense` if few records between them stayed."""
    if len(keys) < MIN_RANGE:
        log_changes(connection, LoggedChange.REGISTRY, keys, at)
        return
    for start in range(0, len(keys), MAX_RANGE):
        part = keys[start : start + MAX_RANGE]
        log_changes(connection, LoggedChange.REGISTRY_RANGE, [part[0] + RANGE_SEPARATOR + part[-1]], at)
        if not is_dense:
            _add_keys(connection, part)


def _add_keys(connection: sqlite3.Connection, keys: Sequence[str]) -> None:
    """Add the keys of the last row. Without room for the oldest keys, their rows go too: whole ranges can be long."""
    text = RANGE_SEPARATOR.join(keys).encode()
    data = _CHECK.pack(crc32(text)) + compress(text)
    (before,) = connection.execute(f"{_TOTAL} DESC LIMIT 1").fetchone() or (0,)
    total = before + len(data)
    connection.execute("INSERT INTO change_log_keys SELECT max(number), ?, ? FROM change_log", (total, data))
    (first,) = connection.execute(f"{_TOTAL} LIMIT 1").fetchone()
    if total - first > MAX_KEY_BYTES:
        (number,) = connection.execute(
            "SELECT max(number) FROM change_log_keys WHERE total <= ?", (total - MAX_KEY_BYTES * 3 // 4,)
        ).fetchone()
        _forget_up_to(connection, number)


def read_keys(connection: sqlite3.Connection, number: int) -> list[str] | None:
    """The keys that changed in the range of a row, in order. None for all keys, also if the file's list is damaged."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'change_log_keys'").fetchone() is None:
        return None
    found = connection.execute("SELECT keys FROM change_log_keys WHERE number = ?", (number,)).fetchone()
    if found is None or not isinstance(found[0], bytes) or len(found[0]) < _CHECK.size:
        return None
    try:
        text = decompress(found[0][_CHECK.size :])
        (check,) = _CHECK.unpack_from(found[0])
        return text.decode().split(RANGE_SEPARATOR) if crc32(text) == check else None
    except ValueError:
        return None


#: The log as a table of the store. Every process that writes into a file has it, or the log would not be complete.
CHANGE_LOG: Final = Table(create_log, after_write=_log_batch)
