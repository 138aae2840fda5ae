"""Removes entries from the cache. Every running proxy on the same store drops its copy within 2 s."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from app.cache.tiered import TieredStore
from app.doi.name import HandleName
from app.handle.answer import ResponseCode

#: Entries that are deleted concurrently.
_CONCURRENCY: Final = 64


async def purge_names(cache: TieredStore, names: Sequence[HandleName]) -> list[HandleName]:
    """Delete the entries of names. Returns the names that had none."""
    return [name for name in names if not await cache.delete(name.key)]


async def purge_entries(cache: TieredStore, *, negative_only: bool) -> int:
    """Delete all entries, or only those without a record. Returns their number."""
    count, keys = 0, list[str]()
    async for entry in cache.scan():
        if not negative_only or entry.answer.code is not ResponseCode.SUCCESS:
            keys.append(entry.key)
        if len(keys) == _CONCURRENCY:
            count += await _delete(cache, keys)
            keys.clear()
    return count + await _delete(cache, keys)


async def _delete(cache: TieredStore, keys: Sequence[str]) -> int:
    # Concurrently, because each deletion waits until it is durable.
    return sum(await asyncio.gather(*(cache.delete(key) for key in keys)))
