"""The earlier targets of names, in the file of a SQLite store: the last three of each, with the time they were seen.

A target is kept when an entry with another one replaces it. A purge deletes those of its names.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from app.cache.entry import Entry
from app.errors import DamagedEntry
from app.features.sqlite.earlier_targets import MAX_TARGETS, EarlierTarget, find_earlier_targets, has_earlier_targets
from app.features.sqlite.feature_tables import Table, Written
from app.features.store_file import connect_to_read
from app.features.stored_entry import unpack
from app.handle.answer import ResponseCode
from app.handle.record import parse_record
from app.web.pages import find_target

#: Targets of all names: about 20 MB. The oldest are dropped first.
MAX_ROWS: Final = 100_000
#: Longer targets are not kept, in characters.
_MAX_CHARACTERS: Final = 2_048
#: Larger records are not compared, in bytes of JSON.
_MAX_BYTES: Final = 65_536
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS earlier_targets (
    number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, seen REAL NOT NULL, target TEXT NOT NULL,
    replaced REAL NOT NULL DEFAULT 0.0
);
CREATE INDEX IF NOT EXISTS earlier_targets_of ON earlier_targets (key);
"""
_COLUMN: Final = "ALTER TABLE earlier_targets ADD COLUMN replaced REAL NOT NULL DEFAULT 0.0"
_INSERT: Final = "INSERT INTO earlier_targets (key, seen, target, replaced) VALUES (?, ?, ?, ?)"
_DROP_OLDEST: Final = (
    "DELETE FROM earlier_targets WHERE key = ? AND number NOT IN"
    " (SELECT number FROM earlier_targets WHERE key = ? ORDER BY number DESC LIMIT ?)"
)
#: After every key with a prefix.
_LAST: Final = "\U0010ffff"


def read_earlier_targets(path: Path, key: str) -> list[EarlierTarget]:
    """The earlier targets of a name, the newest first. Blocks. Without a file that can be read there are none."""
    try:
        with closing(connect_to_read(path)) as connection:
            return find_earlier_targets(connection, key)
    except (sqlite3.Error, OSError):
        return []


def _create(connection: sqlite3.Connection, _: float) -> None:
    """Create the table if the file does not have it. Releases up to 0.2.0 ignore it."""
    connection.executescript(_TABLES)
    if not has_earlier_targets(connection):
        connection.execute(_COLUMN)


def _keep_replaced(connection: sqlite3.Connection, entries: Sequence[Entry]) -> None:
    for entry in entries:
        row = connection.execute("SELECT data FROM entries WHERE key = ?", (entry.key,)).fetchone()
        replaced = None if row is None else _find_replaced(entry, row[0])
        if replaced is None:
            continue
        cursor = connection.execute(_INSERT, replaced)
        connection.execute(_DROP_OLDEST, (entry.key, entry.key, MAX_TARGETS))
        connection.execute("DELETE FROM earlier_targets WHERE number <= ?", ((cursor.lastrowid or 0) - MAX_ROWS,))


def _find_replaced(entry: Entry, data: object) -> tuple[str, float, str, float] | None:
    """The row for the target of the entry in the file, if the new one has another target."""
    try:
        known = unpack(entry.key, data)
    except DamagedEntry:
        return None
    if known is None or known.answer.values == entry.answer.values:
        return None
    before, after = _target_of(known), _target_of(entry)
    if not before or not after or before == after:
        return None
    return entry.key, known.fetched_at, before, entry.fetched_at


def _target_of(entry: Entry) -> str | None:
    if entry.answer.code is not ResponseCode.SUCCESS or len(entry.answer.values) > _MAX_BYTES:
        return None
    target = find_target(parse_record(entry.answer.values).values)
    return target if target is not None and len(target) <= _MAX_CHARACTERS else None


def _delete_purged(connection: sqlite3.Connection, written: Written) -> None:
    for scope in {*written.deleted, *(scope for scope, _ in written.purged)}:
        if scope and not scope.endswith("/"):
            connection.execute("DELETE FROM earlier_targets WHERE key = ?", (scope,))
        else:
            connection.execute("DELETE FROM earlier_targets WHERE key >= ? AND key < ?", (scope, scope + _LAST))


EARLIER_TARGETS: Final = Table(_create, before_write=_keep_replaced, after_write=_delete_purged)
