"""Reads the rows of a SQLite store. A row that is not a valid entry is reported as damaged."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

from doi_proxy.cache.entry import Entry, RegistryEntry
from doi_proxy.cache.store import NearKeys, StoreStats
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.features.sqlite.file import WRITE_TIMEOUT, connect, find_cause, is_damage, translate_open_errors
from doi_proxy.store.file import connect_to_read
from doi_proxy.store.stored_entry import unpack

#: Reads the first row of a query. Raises StoreError.
ReadRow = Callable[[str, tuple[object, ...]], Any]


@dataclass(frozen=True, slots=True)
class Records:
    """The functions of the feature. Those that have a connection raise sqlite3.Error."""

    #: Their table. A file has it after it was opened for writing.
    table: str
    #: Creates the tables that are missing.
    create: Callable[[sqlite3.Connection], None]
    #: Follows what a transaction writes, before it is committed: new entries, and keys whose entry it deleted.
    follow: Callable[[sqlite3.Connection, Sequence[Entry], Sequence[str]], None]
    #: The record of a key. Also raises DamagedEntry.
    find: Callable[[ReadRow, str], RegistryEntry | None]
    #: Of keys, the likeliest first, those with a record, and the keys of records before and after a key.
    near: Callable[[sqlite3.Connection, str, Sequence[str]], tuple[list[str], list[str], list[str]]]
    #: The number of records.
    total: Callable[[ReadRow], object]
    #: The number of names under a prefix with a record and no usable entry at a time. Blocks. Raises StoreError.
    count: Callable[[Path, str, float], int]
    #: Deletes the records under a prefix, and returns their number. Blocks. Raises StoreError.
    forget: Callable[[Path, str, float], int]


_KNOWN: Final = "SELECT key FROM entries WHERE key IN (SELECT value FROM json_each(?))"


class NearSearch:
    """One search at a time. The connection is opened by the first."""

    def __init__(self, path: Path, records: Records | None) -> None:
        self._path = path
        self._records = records
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None

    def find(self, key: str, candidates: Sequence[str]) -> NearKeys:
        """See SearchableStore. Blocks. Raises StoreError."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = connect_to_read(self._path)
                listed = json.dumps(candidates, ensure_ascii=False)
                known = [
                    known_key
                    for (known_key,) in self._connection.execute(_KNOWN, (listed,))
                    if isinstance(known_key, str)
                ]
                if self._records is None:
                    return NearKeys(known)
                records, before, after = self._records.near(self._connection, key, candidates)
                return NearKeys(known, before, after, records)
            except (sqlite3.Error, OSError, ValueError) as error:
                self._close()
                text = f"The names near {key!r} could not be read from {self._path}: {error}."
                raise StoreError(text, cause=find_cause(error)) from error

    def close(self) -> None:
        """Close the connection, after a search that is under way."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


#: Rows read at a time by `pages`.
_PAGE: Final = 500

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
        records: Records | None = None,
    ) -> None:
        """`report_damage` is called if SQLite finds that the file itself is damaged.

        `records` answer names without an entry.
        """
        self.connection = connection
        self._path = path
        self._clock = clock
        self._report_damage = report_damage
        self._failed_reads = 0
        self._damaged_entries = 0
        self._last_failure = ""
        self._records = records
        #: The tables that the file is known to have.
        self._tables: set[str] = set()

    def find(self, key: str) -> tuple[Entry | None, float]:
        """The usable entry of a key, and the time of its last use or 0. Also raises DamagedEntry."""
        row = self.row("SELECT data, last_used FROM entries WHERE key = ?", (key,))
        if row is None:
            return None, 0.0
        data, last_used = row
        return self._unpack(key, data), last_used if isinstance(last_used, int | float) else 0.0

    def find_record(self, key: str) -> RegistryEntry | None:
        """The record that answers a key without an entry. Also raises DamagedEntry."""
        if self._records is None or not self.has_table(self._records.table):
            return None
        try:
            return self._records.find(self.row, key)
        except DamagedEntry:
            self._damaged_entries += 1
            raise

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

    def stats(self) -> StoreStats:
        """The state of the file."""
        failure = self._last_failure
        try:
            entries, size = self.row("SELECT entries, bytes FROM totals") or (0, 0)
            records = self._count_records()
        except StoreError:
            entries, size, records, failure = 0, 0, 0, self._last_failure
        if not (isinstance(entries, int) and isinstance(size, int) and isinstance(records, int)):
            entries, size, records, failure = 0, 0, 0, "the totals are not numbers"
        detail = f"SQLite file {self._path}"
        if failure:
            detail += f"; {self._failed_reads} reads failed, the last one: {failure}"
        if self._damaged_entries:
            detail += f"; {self._damaged_entries} reads of damaged entries, which counted as misses"
        return StoreStats(entries, size, not failure, detail, records)

    def has_table(self, name: str) -> bool:
        """Whether the file has a table. A missing one is created when the file is opened for writing."""
        if name not in self._tables and self.row("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)) is not None:
            self._tables.add(name)
        return name in self._tables

    def _count_records(self) -> object:
        has_some = self._records is not None and self.has_table(self._records.table)
        return self._records.total(self.row) if self._records is not None and has_some else 0

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
            self._damaged_entries += 1
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
