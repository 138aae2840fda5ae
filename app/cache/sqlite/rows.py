"""Reads the rows of a SQLite store. A row that is not a valid entry is reported as damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from app.cache.entry import Entry, RegistryEntry
from app.cache.sqlite.file import is_damage, total_bytes
from app.cache.store import StoreStats
from app.cache.wire import unpack
from app.errors import DamagedEntry, StoreError
from app.features.registry.sqlite_blocks import SELECT_BLOCK
from app.features.registry.wire import find_row, to_entry

#: Rows read at a time by `pages`.
_PAGE: Final = 500

_REGISTRY_TOTAL: Final = "SELECT records FROM registry_total"
_HAS_REWRITING: Final = "SELECT 1 FROM sqlite_master WHERE name = 'rewriting'"
_REWRITING: Final = "SELECT visited FROM rewriting"
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
        report_damage: Callable[[], None],
    ) -> None:
        """`report_damage` is called if SQLite finds that the file itself is damaged."""
        self.connection = connection
        self._path = path
        self._clock = clock
        self._report_damage = report_damage
        self._failed_reads = 0
        self._damaged_entries = 0
        self._last_failure = ""
        self._has_registry: bool | None = None

    def find(self, key: str) -> tuple[Entry | None, float]:
        """The usable entry of a key, and the time of its last use or 0. Also raises DamagedEntry."""
        row = self.row("SELECT data, last_used FROM entries WHERE key = ?", (key,))
        if row is None:
            return None, 0.0
        data, last_used = row
        return self._unpack(key, data), last_used if isinstance(last_used, int | float) else 0.0

    def find_registry(self, key: str) -> RegistryEntry | None:
        """The registry record of a key. Also raises DamagedEntry."""
        block = self.row(SELECT_BLOCK, (key,)) if self._knows_registry() else None
        if block is None:
            return None
        first, _, data = block
        try:
            row = find_row(key, first, data)
        except DamagedEntry:
            self._damaged_entries += 1
            raise
        return None if row is None else to_entry(row)

    def pages(self, prefix: str) -> Iterator[list[Entry]]:
        """The usable entries whose key begins with `prefix`, in order. Damaged entries are left out."""
        for page in self.raw_pages(prefix):
            yield [entry for key, data in page if (entry := self._try_unpack(key, data))]

    def raw_pages(self, prefix: str = "") -> Iterator[list[tuple[str, object]]]:
        """The keys that begin with `prefix`, and the stored bytes, in order."""
        select, start = _FROM, prefix
        while True:
            rows = self.rows(select, (start, _PAGE))
            # SQLite sorts blobs, which a damaged row can have as its key, after all text.
            texts = [(key, data) for key, data in rows if isinstance(key, str)]
            yield [(key, data) for key, data in texts if key.startswith(prefix)]
            if len(texts) < _PAGE or not texts[-1][0].startswith(prefix):
                return
            select, start = _AFTER, texts[-1][0]

    def stats(self) -> StoreStats:
        """The state of the file."""
        failure = self._last_failure
        try:
            entries, length = self.row("SELECT entries, bytes FROM totals") or (0, 0)
            (records,) = (self.row(_REGISTRY_TOTAL) if self._knows_registry() else None) or (0,)
        except StoreError:
            entries, length, records, failure = 0, 0, 0, self._last_failure
        if not all(isinstance(number, int) for number in (entries, length, records)):
            entries, length, records, failure = 0, 0, 0, "the totals are not numbers"
        detail = f"SQLite file {self._path}{self._describe_rewriting()}"
        if failure:
            detail += f"; {self._failed_reads} reads failed, the last one: {failure}"
        if self._damaged_entries:
            detail += f"; {self._damaged_entries} reads of damaged entries, which counted as misses"
        return StoreStats(entries, total_bytes(entries, length), not failure, detail, records)

    def _describe_rewriting(self) -> str:
        try:
            state = self.row(_REWRITING) if self.row(_HAS_REWRITING) else None
        except StoreError:
            return ""
        return "" if state is None else f"; entries of an earlier release are rewritten, {state[0]} visited"

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

    def _knows_registry(self) -> bool:
        """Whether the file has registry records. One of an earlier release has them after it was opened for writing."""
        if not self._has_registry:
            self._has_registry = self.row("SELECT 1 FROM sqlite_master WHERE name = 'registry_blocks'") is not None
        return self._has_registry

    def _unpack(self, key: str, data: object) -> Entry | None:
        try:
            entry = unpack(key, data)
        except DamagedEntry:
            self._damaged_entries += 1
            raise
        return entry if entry is not None and entry.is_usable(self._clock()) else None

    def _try_unpack(self, key: str, data: object) -> Entry | None:
        try:
            return self._unpack(key, data)
        except DamagedEntry:
            return None

    def _note_failure(self, error: Exception) -> StoreError:
        self._failed_reads += 1
        self._last_failure = str(error)
        if is_damage(error):
            self._report_damage()
        return StoreError(f"The store {self._path} failed: {error}.")
