"""Applies the lines of a delta that are not records of the cache: purges, and records of registration agencies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from app.cache.entry import Entry, RegistryEntry
from app.cache.purges import EVERYTHING
from app.cache.tiered import TieredStore
from app.features.bundles.delta import DeltaPurge, Forgotten
from app.features.registry.record import RegistryRecord
from app.features.registry.sqlite_table import RegistryTable
from app.features.registry.wire import RegistryRow, to_row

#: Registry records that wait to be written, and entries that are deleted concurrently.
_MAX_WAITING: Final = 4_000
_CONCURRENCY: Final = 64


class ChangeWriter:
    """Applies changes in their order. A purge does not delete what was fetched after it."""

    def __init__(self, cache: TieredStore, registry: RegistryTable | None, clock: Callable[[], float]) -> None:
        """Without `registry`, the records of registration agencies are left out: only a SQLite store has them."""
        self._cache = cache
        self._registry = registry
        self._clock = clock
        self._records: dict[str, RegistryRow] = {}

    async def apply(self, change: RegistryRecord | DeltaPurge | Forgotten) -> str:
        """Apply a change, and return its outcome. Raises StoreError."""
        if isinstance(change, RegistryRecord):
            return self._add(change)
        self.write()
        if isinstance(change, Forgotten):
            gone = 0 if self._registry is None else self._registry.forget([change.key])
            return "forgotten" if gone else "kept"
        at = min(change.at, self._clock())
        if change.scope == EVERYTHING or change.scope.endswith("/"):
            await self._purge_scope(change.scope, at)
        elif not await self._purge_name(change.scope, at):
            return "kept"
        return "purged"

    def write(self) -> None:
        """Write the registry records that wait. Raises StoreError."""
        if self._records and self._registry is not None:
            self._registry.write([self._records[key] for key in sorted(self._records)])
        self._records.clear()

    def _add(self, record: RegistryRecord) -> str:
        if self._registry is None:
            return "left out"
        # As for entries, a date in the future would outlast every later record.
        self._records[record.name.key] = to_row(replace(record, date=min(record.date, int(self._clock()))))
        if len(self._records) >= _MAX_WAITING:
            self.write()
        return "registry"

    async def _purge_name(self, key: str, at: float) -> bool:
        known = await self._cache.reread(key)
        if known is not None and not isinstance(known, RegistryEntry) and known.fetched_at > at:
            return False
        await self._cache.delete(key)
        return True

    async def _purge_scope(self, scope: str, at: float) -> None:
        await self._cache.begin_purge(scope)
        waiting: list[Entry] = []
        async for entry in self._cache.scan(scope):
            if entry.fetched_at <= at:
                waiting.append(entry)
            if len(waiting) >= _CONCURRENCY:
                await self._delete(waiting, scope)
        await self._delete(waiting, scope)
        await self._cache.end_purge(scope)
        await self._cache.forget_registry(scope)

    async def _delete(self, entries: list[Entry], scope: str) -> None:
        # One announcement of a prefix stands for its names: other processes drop all they have if many are announced.
        announce = scope == EVERYTHING
        await asyncio.gather(*(self._cache.delete(entry.key, announce=announce) for entry in entries))
        entries.clear()
