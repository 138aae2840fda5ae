"""The log of what a SQLite store wrote, for its replicas. The log is bounded: old rows are deleted.

A row names what changed. A delta reads the record itself from its table (see change_pages.py), so a record that was
written several times is sent once, as it is now.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from app.cache.entry import Entry
from app.cache.purges import Purges
from app.cache.sqlite.tables import Table, Written

#: Limit of the rows of the log. A row takes about 40 bytes.
MAX_ROWS: Final = 1_000_000
#: Rows beyond the limit before the oldest are deleted.
SLACK: Final = 1_000
#: Between the first and the last key of a range. A name has no control characters.
RANGE_SEPARATOR: Final = "\n"

#: `origin` identifies the log, and says since when it has been complete, in seconds since the epoch.
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS change_log (
    number INTEGER PRIMARY KEY AUTOINCREMENT, kind INTEGER NOT NULL, key TEXT NOT NULL, at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS change_log_origin (
    id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL, at REAL NOT NULL
);
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
    #: The table of registry records has all keys from a first to a last one anew.
    REGISTRY_RANGE = 3
    FORGOTTEN = 4


def _log_batch(connection: sqlite3.Connection, written: Written) -> None:
    log_purges(connection, written.purged, written.known, written.purges)
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
        connection.execute("DELETE FROM change_log WHERE number <= ?", (newest - MAX_ROWS,))


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
        if entry is None or not purges.refuses_by_scope(scope, entry.fetched_at, at):
            log_changes(connection, LoggedChange.PURGE, [scope], at)


def log_registry(connection: sqlite3.Connection, keys: Sequence[str], at: float, *, is_new_range: bool) -> None:
    """Add written registry records. With `is_new_range`, the table has no other keys between the first and the last."""
    if is_new_range and len(keys) > 1:
        log_changes(connection, LoggedChange.REGISTRY_RANGE, [min(keys) + RANGE_SEPARATOR + max(keys)], at)
    else:
        log_changes(connection, LoggedChange.REGISTRY, keys, at)


#: The log as a table of the store. Every process that writes into a file has it, or the log would not be complete.
CHANGE_LOG: Final = Table(create_log, _log_batch)
