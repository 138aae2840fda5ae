"""A SQLite store for commands that only read. It neither creates nor changes a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from doi_proxy.cache.coordination import Changes
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.store import StoreStats
from doi_proxy.errors import StoreError
from doi_proxy.features.sqlite.file import open_to_read
from doi_proxy.features.sqlite.notes import read_note
from doi_proxy.features.sqlite.records import Records
from doi_proxy.features.sqlite.rows import Rows
from doi_proxy.store.file import has_log


class ReadOnlySqliteStore:
    """A Store that cannot be changed. Methods that write raise StoreError; a lease is always free."""

    def __init__(self, path: Path, *, clock: Callable[[], float], records: Records | None = None) -> None:
        """`clock` gives seconds since the epoch. `records` are those of a feature.

        Raises StoreError, also for a damaged file.
        """
        self._path = path
        self._clock = clock
        self._opened = _find_log(path)
        self._records = records
        self._rows = Rows(path, open_to_read(path), clock, report_damage=lambda _: None, records=self._records)

    async def get(self, key: str) -> Entry | None:
        """See Store."""
        self._follow_log()
        return self._rows.find(key)[0] or self._rows.find_record(key)

    async def put(
        self, entry: Entry, *, announce: bool = False, sent_at: float | None = None, unless_newer: bool = False
    ) -> None:
        """Raises StoreError."""
        raise self._refusal()

    async def delete(self, key: str, *, announce: bool = True) -> bool:
        """Raises StoreError."""
        raise self._refusal()

    async def announce(self, scope: str) -> None:
        """Raises StoreError."""
        raise self._refusal()

    async def forget_registry(self, prefix: str) -> int:
        """Raises StoreError."""
        raise self._refusal()

    async def scan(self, prefix: str = "") -> AsyncIterator[Entry]:
        """See Store."""
        self._follow_log()
        for page in self._rows.pages(prefix):
            for entry in page:
                yield entry
            await asyncio.sleep(0)  # other tasks run between the pages
            self._follow_log()

    async def changes(self, cursor: str | None) -> Changes:
        """No changes: a command ends before they matter. A service calls this every second."""
        self._follow_log()
        return Changes(cursor or "0")

    async def lease(self, key: str, owner: str, seconds: float) -> bool:
        """Always free: a command that only reads does not query an upstream."""
        return True

    async def renew(self, key: str, owner: str, seconds: float) -> None:
        """Do nothing."""

    async def release(self, key: str, owner: str) -> None:
        """Do nothing."""

    async def take(
        self, bucket: str, rate: float, burst: float, leaving: float = 0.0, count: int = 1, *, is_first: bool = False
    ) -> float:
        """Raises StoreError."""
        raise self._refusal()

    async def back_off(self, bucket: str, seconds: float) -> None:
        """Raises StoreError."""
        raise self._refusal()

    async def count_registry(self, prefix: str) -> int:
        """See RecordStore."""
        if self._records is None:
            return 0
        return await asyncio.to_thread(self._records.count, self._path, prefix, self._clock())

    async def read_note(self, name: str) -> bytes | None:
        """See Store."""
        self._follow_log()
        return read_note(self._rows, name)

    async def write_note(self, name: str, data: bytes) -> None:
        """Raises StoreError."""
        raise self._refusal()

    async def stats(self) -> StoreStats:
        """See Store."""
        self._follow_log()
        return self._rows.stats()

    async def flush(self) -> None:
        """Do nothing: there are no writes."""

    async def close(self) -> None:
        """See Store."""
        self._rows.connection.close()

    def _follow_log(self) -> None:
        """Open the file again if a proxy has opened it since, or its log can be written since.

        Without a log it was opened as immutable. While this process reads a log whose index it cannot write, SQLite
        does not let it open the file for writing.
        """
        found = _find_log(self._path)
        if found != self._opened and found[0]:
            self._rows.connection.close()
            self._rows.connection = open_to_read(self._path)
            self._opened = found

    def _refusal(self) -> StoreError:
        return StoreError(f"The store {self._path} is open for reading only.")


def _find_log(path: Path) -> tuple[bool, bool]:
    """Whether there is a log, and whether its index can be written."""
    return has_log(path), os.access(f"{path}-shm", os.W_OK)
