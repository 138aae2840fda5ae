"""Reads what a SQLite store wrote since a cursor, in pages of limited size."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

from app.cache.entry import Entry
from app.errors import DamagedEntry
from app.features.bundles.bundle import BundleWriter
from app.features.bundles.delta import (
    VERSION,
    Cursor,
    DeltaChange,
    DeltaEnd,
    DeltaPurge,
    DeltaStage,
    DeltaStart,
    Forgotten,
    delta_line,
)
from app.features.follow.errors import ChangesGone
from app.features.registry import sqlite_blocks as registry_blocks
from app.features.registry.sqlite_change_log import RANGE_SEPARATOR, LoggedChange, read_keys
from app.features.registry.wire import to_record
from app.features.sqlite.earlier_targets import EarlierTarget, find_earlier_targets, has_earlier_targets
from app.features.sqlite.file import connect_to_read, translate_open_errors
from app.features.stored_entry import unpack

#: Limits of a page: its lines, and their bytes, beyond which no line is added. One record has at most a few MiB.
MAX_CHANGES: Final = 2_000
MAX_BYTES: Final = 2 * 1024 * 1024

_ENTRIES: Final = "SELECT key, data FROM entries WHERE key > ? ORDER BY key"
_LOG: Final = "SELECT number, kind, key, at FROM change_log WHERE number > ? ORDER BY number LIMIT ?"
_OTHER_STATE: Final = "The cursor is one of another store, or of another state of this one; begin again."
#: Rows of the log that are read for one page. Many of them can concern one record.
_MAX_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Lines of a delta, the cursor after them, and whether the store has more."""

    lines: tuple[bytes, ...]
    cursor: Cursor
    more: bool


def read_changes(path: Path, cursor: Cursor | None, now: float) -> ChangePage:
    """The changes after a cursor, or the first of everything. `now` is in seconds since the epoch.

    Raises ChangesGone if the log does not go back to the cursor, and StoreError. Blocks for about 20 ms.
    """
    with translate_open_errors(path, "for reading"), closing(connect_to_read(path)) as connection:
        connection.execute("BEGIN")  # one state of the file for all queries
        log = _read_log(connection)
        start = Cursor(log.origin, log.newest, DeltaStage.ENTRIES) if cursor is None else cursor
        log.check(start)
        if start.mark and _mark(connection, start.number) not in (start.mark, ""):
            raise ChangesGone(_OTHER_STATE)
        page = _Page(connection, start, now, has_earlier_targets(connection))
        page.fill()
        more = page.cursor.stage is not DeltaStage.LOG or page.cursor.number < log.newest
        # A page without rows of the log keeps its number, and so its mark, which may have left the log since.
        mark = _mark(connection, page.cursor.number) or (start.mark if page.cursor.number == start.number else "")
        return ChangePage(tuple(page.lines), replace(page.cursor, mark=mark), more)


def write_delta(
    path: Path, cursor: Cursor | None, since: str, file: BinaryIO, clock: Callable[[], float], *, whole: bool
) -> tuple[int, DeltaEnd]:
    """Write a delta of the next page, or of the whole rest. Returns its changes, and its last line.

    `since` is the cursor as it was sent. Raises as `read_changes`.
    """
    writer = BundleWriter(file)
    writer.add_line(delta_line(DeltaStart(VERSION, since)))
    changes, more = 0, True
    while more:
        page = read_changes(path, cursor, clock())
        for line in page.lines:
            writer.add_line(line)
        changes += len(page.lines)
        cursor, more = page.cursor, page.more and whole
    end = DeltaEnd(str(page.cursor), page.more)
    writer.add_line(delta_line(end))
    writer.finish()
    return changes, end


def find_cursor(path: Path, since: float) -> Cursor:
    """The cursor of a time. Raises ChangesGone if the log does not go back to it, and StoreError."""
    with translate_open_errors(path, "for reading"), closing(connect_to_read(path)) as connection:
        log = _read_log(connection)
        if since < log.complete_since:
            raise ChangesGone("The log of the store does not go back to that time; export everything.")
        (number,) = connection.execute("SELECT min(number) FROM change_log WHERE at >= ?", (since,)).fetchone()
        return Cursor(log.origin, log.newest if number is None else number - 1)


@dataclass(frozen=True, slots=True)
class _Log:
    origin: str
    #: The numbers of the first and the last row. A log without rows has 1 and 0.
    oldest: int
    newest: int
    complete_since: float

    def check(self, cursor: Cursor) -> None:
        if cursor.origin != self.origin or cursor.number > self.newest:
            raise ChangesGone(_OTHER_STATE)
        if cursor.number < self.oldest - 1:
            raise ChangesGone("The log of the store does not go back to the cursor; begin again.")


def _mark(connection: sqlite3.Connection, number: int) -> str:
    """The checksum of a row of the log. Empty for a row that is not there."""
    row = connection.execute("SELECT kind, key, at FROM change_log WHERE number = ?", (number,)).fetchone()
    return "" if row is None else f"{crc32(repr(row).encode(errors='replace')):08x}"


def _read_log(connection: sqlite3.Connection) -> _Log:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'change_log_origin'").fetchone() is None:
        raise ChangesGone("The store has no log of changes yet; start this release of doi-proxy on it.")
    origin, begin = connection.execute("SELECT name, at FROM change_log_origin").fetchone()
    first = connection.execute("SELECT number, at FROM change_log ORDER BY number LIMIT 1").fetchone()
    if first is None:
        return _Log(origin, 1, 0, begin)
    (newest,) = connection.execute("SELECT max(number) FROM change_log").fetchone()
    oldest, at = first
    return _Log(origin, oldest, newest, begin if oldest == 1 else at)


@dataclass(slots=True)
class _Page:
    connection: sqlite3.Connection
    cursor: Cursor
    now: float
    has_earlier: bool
    lines: list[bytes] = field(default_factory=list)
    _bytes: int = 0

    def fill(self) -> None:
        if self.cursor.stage is DeltaStage.ENTRIES and self._add_table(self._entries()):
            self.cursor = replace(self.cursor, stage=DeltaStage.REGISTRY, after="")
        if self.cursor.stage is DeltaStage.REGISTRY and self._add_table(self._records()):
            self.cursor = replace(self.cursor, stage=DeltaStage.LOG, after="")
        if self.cursor.stage is DeltaStage.LOG:
            self._add_log()

    def _is_full(self) -> bool:
        return len(self.lines) >= MAX_CHANGES or self._bytes >= MAX_BYTES

    def _add(self, change: DeltaChange | None) -> None:
        if change is None:
            return
        line = delta_line(change, self._find_earlier(change.key) if isinstance(change, Entry) else ())
        self.lines.append(line)
        self._bytes += len(line)

    def _find_earlier(self, key: str) -> list[EarlierTarget]:
        return find_earlier_targets(self.connection, key) if self.has_earlier else []

    def _add_table(self, rows: Iterable[tuple[str, DeltaChange | None]]) -> bool:
        """Add rows, each a key and a change. Returns whether all of them fit."""
        # Not every row is a line: an entry may be too old.
        for count, (key, change) in enumerate(rows):
            if self._is_full() or count >= MAX_CHANGES:
                return False
            self._add(change)
            self.cursor = replace(self.cursor, after=key)
        return not self._is_full()

    def _entries(self) -> Iterator[tuple[str, Entry | None]]:
        """The entries after the cursor."""
        for key, data in self.connection.execute(_ENTRIES, (self.cursor.after,)):
            if not isinstance(key, str):
                return  # SQLite sorts blobs, which a damaged row can have as its key, after all text
            yield key, self._unpack_entry(key, data)

    def _records(self, first: str = "", last: str | None = None) -> Iterator[tuple[str, DeltaChange | None]]:
        """The registry records after the cursor, in a range of keys."""
        for row in registry_blocks.read_rows(self.connection, self.cursor.after, first):
            if last is not None and row[0] > last:
                return
            yield row[0], to_record(row)

    def _range(self, number: int, bounds: str) -> Iterator[tuple[str, DeltaChange | None]]:
        """The records of a range that changed, after the cursor."""
        keys = read_keys(self.connection, number)
        if keys is None:
            first, _, last = bounds.partition(RANGE_SEPARATOR)
            return self._records(first, last)
        later = keys[bisect_right(keys, self.cursor.after) :]
        return ((key, self._find(LoggedChange.REGISTRY, key)) for key in later)

    def _add_log(self) -> None:
        sent = set[tuple[int, str]]()
        for number, kind, key, at in self.connection.execute(_LOG, (self.cursor.number, _MAX_ROWS)).fetchall():
            if self._is_full():
                return
            if kind == LoggedChange.REGISTRY_RANGE:
                if not self._add_table(self._range(number, key)):
                    return
            elif kind == LoggedChange.PURGE:
                sent.clear()
                self._add(DeltaPurge(key, at))
            elif (kind, key) not in sent:
                sent.add((kind, key))
                self._add(self._find(kind, key))
            self.cursor = Cursor(self.cursor.origin, number)

    def _find(self, kind: int, key: str) -> DeltaChange | None:
        """What the store has of a key now. None if it was evicted, or purged since: then the purge follows."""
        if kind == LoggedChange.PUT:
            row = self.connection.execute("SELECT data FROM entries WHERE key = ?", (key,)).fetchone()
            return None if row is None else self._unpack_entry(key, row[0])
        try:
            row = registry_blocks.find(self.connection, key)
        except DamagedEntry:
            return None
        if row is None:
            return Forgotten(key) if kind == LoggedChange.FORGOTTEN else None
        return to_record(row)

    def _unpack_entry(self, key: str, data: object) -> Entry | None:
        try:
            entry = unpack(key, data)
        except DamagedEntry:
            return None
        return entry if entry is not None and entry.is_usable(self.now) else None
