"""Makes a store what a bundle says: at the end, the names that the bundle does not have are deleted.

Until then the store only gains records. An import that is stopped, or whose bundle is not whole, deletes no name.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Final

from doi_proxy.cache.entry import Entry
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import DoiProxyError
from doi_proxy.features.bundles.import_bundle import DELETED, BundleImport, ImportBounds

#: Names that are deleted concurrently.
_CONCURRENCY: Final = 64


class ListedNames:
    """The keys of a bundle. There can be millions, so they are in a temporary file, which SQLite deletes itself."""

    def __init__(self) -> None:
        self._connection = sqlite3.connect("", isolation_level=None)
        self._connection.execute("CREATE TABLE names (key TEXT PRIMARY KEY) WITHOUT ROWID")
        # One transaction for all: the file is needed by this process alone.
        self._connection.execute("BEGIN")

    def add(self, key: str) -> None:
        """Add a key. Raises DoiProxyError if the disk is full."""
        try:
            self._connection.execute("INSERT OR IGNORE INTO names VALUES (?)", (key,))
        except sqlite3.Error as error:
            raise DoiProxyError(
                f"--replace: the names of the bundle cannot be written to a temporary file: {error}; make room, or set"
                " SQLITE_TMPDIR to another folder"
            ) from error

    def __contains__(self, key: str) -> bool:
        return self._connection.execute("SELECT 1 FROM names WHERE key = ?", (key,)).fetchone() is not None

    def close(self) -> None:
        """Delete the file."""
        self._connection.close()


class BundleReplacement(BundleImport):
    """Puts the records of a bundle into a cache in place of what it has, and deletes the other names.

    What the upstream has answered since the import began stays.
    """

    def __init__(
        self, cache: TieredStore, bounds: ImportBounds, clock: Callable[[], float], names: ListedNames
    ) -> None:
        super().__init__(cache, bounds, clock)
        self._names = names
        self._began = clock()

    async def delete_others(self) -> None:
        """Delete the names that the bundle does not have, as a purge does. Raises StoreError."""
        self.report.counts[DELETED], waiting = 0, list[str]()
        async for entry in self._cache.scan():
            if entry.key not in self._names and entry.fetched_at <= self._began:
                waiting.append(entry.key)
            if len(waiting) >= _CONCURRENCY:
                await self._delete(waiting)
        await self._delete(waiting)
        await self.finish()

    async def _store(self, entry: Entry, now: float) -> bool:
        self._names.add(entry.key)
        known = await self._cache.get(entry.key, newest=True)
        if known is None or not known.is_confirmed:
            await self._cache.put(entry)
            return True
        is_same = known.fetched_at == entry.fetched_at and known.answer.values == entry.answer.values
        if known.fetched_at > self._began or (is_same and known.is_usable(now)):
            return False
        await self._cache.put(entry, announce=True)
        return True

    async def _delete(self, keys: list[str]) -> None:
        await asyncio.gather(*(self._cache.delete(key) for key in keys))
        self.report.counts[DELETED] += len(keys)
        keys.clear()
