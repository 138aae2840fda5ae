"""Reads the rows of a SQLite store. A row that is not a valid entry is reported as damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from doi_proxy.cache.entry import Entry
from doi_proxy.cache.store import RegistryRecords, StoreStats
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.features.sqlite.file import WRITE_TIMEOUT, connect, find_cause, is_damage, translate_open_errors
from doi_proxy.store.stored_entry import unpack

if TYPE_CHECKING:
    from doi_proxy.features.sqlite.store import SqliteStore

#: Announced by each transaction that changes a record of Records, whichever it is. A name has no control characters.
REGISTRY_CHANGED: Final = "\tregistry"


class Records(RegistryRecords, Protocol):
    """What a feature has in the file beside the entries. Methods with a connection raise sqlite3.Error."""

    def __init__(self, store: SqliteStore, rows: Rows, path: Path, clock: Callable[[], float]) -> None:
        """The records in the file of a store. `clock` gives seconds since the epoch."""

    @staticmethod
    def create(connection: sqlite3.Connection) -> None:
        """Create the tables that are missing. A file has them after it was opened for writing."""

    def follow(self, connection: sqlite3.Connection, entries: Sequence[Entry], deleted: Sequence[str]) -> bool:
        """Follow what a transaction writes: entries, and keys that it deletes. Returns whether a record has changed."""

    def forget_recent(self) -> None:
        """Forget what was read: a record has changed. Any thread may call it."""

    def total(self) -> object:
        """The number of records. Raises StoreError."""


#: Rows read at a time by `pages`.
_PAGE: Final = 500

#: Those of a list of keys, as JSON, that have an entry.
SELECT_KNOWN: Final = "SELECT key FROM entries WHERE key IN (SELECT value FROM json_each(?))"
_AFTER: Final = "SELECT key, data FROM entries WHERE key > ? ORDER BY key LIMIT ?"


class Rows:
    """The rows of one file, read in the caller's thread. Every method raises StoreError."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        clock: Callable[[], float],
        *,
        report_damage: Callable[[Exception], None],
    ) -> None:
        """`report_damage` is called if SQLite finds that the file itself is damaged."""
        self.connection = connection
        self._path = path
        self._clock = clock
        self._report_damage = report_damage
        self._failed_reads = 0
        #: Reads of damaged entries and records.
        self.damaged_entries = 0
        self._last_failure = ""
        #: The tables that the file is known to have.
        self._tables: set[str] = set()

    def find(self, key: str) -> tuple[Entry | None, float]:
        """The usable entry of a key, and the time of its last use or 0. Also raises DamagedEntry."""
        row = self.row("SELECT data, last_used FROM entries WHERE key = ?", (key,))
        if row is None:
            return None, 0.0
        data, last_used = row
        return self._unpack(key, data), last_used if isinstance(last_used, int | float) else 0.0

    def pages(self, prefix: str) -> Iterator[list[Entry]]:
        """The entries before their hard expiry whose key begins with `prefix`, in order. Damaged ones are left out."""
        select, start = "SELECT key, data FROM entries WHERE key >= ? ORDER BY key LIMIT ?", prefix
        while True:
            rows = self.rows(select, (start, _PAGE))
            # SQLite sorts blobs, which a damaged row can have as its key, after all text.
            texts = [(key, data) for key, data in rows if isinstance(key, str)]
            pairs = [(key, data) for key, data in texts if key.startswith(prefix)]
            yield [entry for key, data in pairs if (entry := self._try_unpack(key, data))]
            if len(texts) < _PAGE or not texts[-1][0].startswith(prefix):
                return
            select, start = _AFTER, texts[-1][0]

    def stats(self, count_records: Callable[[], object] = int) -> StoreStats:
        """The state of the file."""
        failure = self._last_failure
        try:
            entries, size = self.row("SELECT entries, bytes FROM totals") or (0, 0)
            records = count_records()
        except StoreError:
            entries, size, records, failure = 0, 0, 0, self._last_failure
        if not (isinstance(entries, int) and isinstance(size, int) and isinstance(records, int)):
            entries, size, records, failure = 0, 0, 0, "the totals are not numbers"
        detail = f"SQLite file {self._path}"
        if failure:
            detail += f"; {self._failed_reads} reads failed, the last one: {failure}"
        if self.damaged_entries:
            detail += f"; {self.damaged_entries} reads of damaged entries, which counted as misses"
        return StoreStats(entries, size, not failure, detail, records)

    def has_table(self, name: str) -> bool:
        """Whether the file has a table. A missing one is created when the file is opened for writing."""
        if name not in self._tables and self.row("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)) is not None:
            self._tables.add(name)
        return name in self._tables

    def row(self, sql: str, values: tuple[object, ...] = ()) -> Any:
        """The first row of a query."""
        # `translate_errors` is not used here: a context manager would cost as much as the read.
        try:
            row = self.connection.execute(sql, values).fetchone()
        except (sqlite3.Error, ValueError, OverflowError) as error:
            raise self._note_failure(error) from error
        self._last_failure = ""
        return row

    def rows(self, sql: str, values: tuple[object, ...]) -> list[Any]:
        """All rows of a query."""
        with self.translate_errors():
            return self.connection.execute(sql, values).fetchall()

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate the errors of SQLite to StoreError."""
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, OverflowError) as error:
            raise self._note_failure(error) from error

    def _unpack(self, key: str, data: object) -> Entry | None:
        try:
            entry = unpack(key, data)
        except DamagedEntry:
            self.damaged_entries += 1
            raise
        return entry if entry is not None and entry.is_kept(self._clock()) else None

    def _try_unpack(self, key: str, data: object) -> Entry | None:
        try:
            return self._unpack(key, data)
        except DamagedEntry:
            return None

    def _note_failure(self, error: Exception) -> StoreError:
        self._failed_reads += 1
        self._last_failure = str(error)
        if is_damage(error):
            self._report_damage(error)
        return StoreError(f"The store {self._path} failed: {error}.", cause=find_cause(error))


#: The longest value, in bytes: those of features are far shorter. It is read in one turn of the event loop.
_MAX_BYTES: Final = 8 * 1024 * 1024


def read_note(rows: Rows, name: str) -> bytes | None:
    """The value of a note. A long one counts as none. Raises StoreError."""
    query = "SELECT data FROM notes WHERE name = ? AND length(data) <= ?"
    (data,) = rows.row(query, (name, _MAX_BYTES)) or (None,)
    # A damaged row can have a value of any type.
    return data if isinstance(data, bytes) else None


def write_note(path: Path, name: str, data: bytes) -> None:
    """Write the value of a note. Blocks. Raises StoreError."""
    with translate_open_errors(path, "for writing"), closing(connect(path, timeout=WRITE_TIMEOUT)) as connection:
        connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, data))


def try_notes(path: Path) -> None:
    """Raise StoreError if no note can be written now. Waits for no lock."""
    with translate_open_errors(path, "for writing"), closing(connect(path, timeout=0.0)) as connection:
        connection.execute("BEGIN IMMEDIATE")
