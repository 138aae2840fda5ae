"""Reads the rows of a SQLite store. A row that is not a valid entry is reported as damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from doi_proxy.cache.entry import Entry, RegistryEntry
from doi_proxy.cache.store import StoreStats
from doi_proxy.errors import DamagedEntry, StoreError
from doi_proxy.features.sqlite.file import find_cause, is_damage
from doi_proxy.features.sqlite.records import Records
from doi_proxy.store.stored_entry import unpack

#: Rows read at a time by `pages`.
_PAGE: Final = 500

_HAS_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE name = ?"
_FROM: Final = "SELECT key, data FROM entries WHERE key >= ? ORDER BY key LIMIT ?"
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
        select, start = _FROM, prefix
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
        if name not in self._tables and self.row(_HAS_TABLE, (name,)) is not None:
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
