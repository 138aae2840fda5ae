"""Removes or expires entries of the cache. Every running proxy on the same store drops its copy within 2 s."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from doi_names.name import HandleName, fold
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.purges import EVERYTHING, NOT_FOUND
from doi_proxy.cache.tiered import TieredStore

#: Entries that are changed concurrently.
_CONCURRENCY: Final = 64


@dataclass(frozen=True, slots=True)
class Selection:
    """The entries to purge: names, those under a prefix, negative entries, or all. Exactly one is set."""

    names: Sequence[HandleName] = ()
    prefix: HandleName | None = None
    negative: bool = False
    everything: bool = False

    def scope(self) -> str:
        """The scope whose earlier queries a purge refuses, unless it is one of names: each name is its own scope."""
        if self.prefix is not None:
            return fold(self.prefix.key).rstrip("/") + "/"
        return EVERYTHING if self.everything else NOT_FOUND


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """How many entries there were, and the names that had none."""

    count: int
    absent: tuple[HandleName, ...] = ()


async def purge(cache: TieredStore, selection: Selection, *, soft: bool = False) -> PurgeResult:
    """Delete entries, or with `soft` make them stale: they stay for outages, and the next request queries the upstream.

    The answers to queries that were sent earlier are not stored (see app/doi_proxy/cache/purges.py).
    """
    if selection.names and not soft:
        absent = tuple([name for name in selection.names if not await cache.delete(name.key)])
        await cache.forget_works([name.key for name in selection.names])
        return PurgeResult(len(selection.names) - len(absent), absent)
    if selection.prefix is not None and not soft:
        return PurgeResult(await cache.clear_prefix(selection.prefix.key))
    if selection.names:
        return await _expire_names(cache, selection.names)
    await cache.begin_purge(selection.scope())

    async def change(entry: Entry) -> None:
        # Announced one by one, more than 5,000 names would empty the memory of the other processes.
        if soft:
            await cache.expire(entry, announce=False)
        else:
            await cache.delete(entry.key, announce=selection.everything)

    result = await _change(cache, selection, change)
    await cache.end_purge(selection.scope())
    if selection.everything and not soft:
        return PurgeResult(result.count + await cache.forget_registry())
    return result


async def _expire_names(cache: TieredStore, names: Sequence[HandleName]) -> PurgeResult:
    absent = []
    for name in names:
        # Before the purge begins, because that deletes the entry of a name.
        entry = await cache.get(name.key, newest=True)
        if entry is not None and not entry.is_confirmed:
            continue  # it is never fresh, and the purge would delete it
        await cache.begin_purge(name.key)
        if entry is None:
            absent.append(name)
        else:
            await cache.expire(entry, announce=False)
    await cache.flush()
    return PurgeResult(len(names) - len(absent), tuple(absent))


async def count_selected(cache: TieredStore, selection: Selection, *, soft: bool = False) -> PurgeResult:
    """Count what `purge` would change. A soft purge leaves registry records as they are."""

    async def leave(_: Entry) -> None:
        return

    result = await _change(cache, selection, leave)
    if soft or selection.negative or selection.names:
        return result
    registry = await cache.count_registry("" if selection.everything else selection.scope())
    return PurgeResult(result.count + registry)


async def _change(
    cache: TieredStore, selection: Selection, change: Callable[[Entry], Awaitable[object]]
) -> PurgeResult:
    found, waiting = set[str](), list[Entry]()
    async for entry in _select(cache, selection):
        found.add(entry.key)
        waiting.append(entry)
        if len(waiting) == _CONCURRENCY:
            await _apply(cache, waiting, change)
            waiting.clear()
    await _apply(cache, waiting, change)
    return PurgeResult(len(found), tuple(name for name in selection.names if name.key not in found))


async def _apply(cache: TieredStore, entries: Sequence[Entry], change: Callable[[Entry], Awaitable[object]]) -> None:
    # Concurrently, because each deletion waits until it is durable. The queue of other writes is limited.
    await asyncio.gather(*(change(entry) for entry in entries))
    await cache.flush()


async def _select(cache: TieredStore, selection: Selection) -> AsyncIterator[Entry]:
    if selection.names:
        for name in selection.names:
            if (entry := await cache.get(name.key, newest=True)) is not None:
                yield entry
        return
    async for entry in cache.scan("" if selection.prefix is None else selection.scope()):
        if not selection.negative or entry.is_negative:
            yield entry
