"""Removes or expires entries of the cache. Every running proxy on the same store drops its copy within 2 s."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from doi_names.errors import NotADOI
from doi_names.name import HandleName, fold
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.store import EVERYTHING, NOT_FOUND, StoreStats
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import CouldNotVerify
from doi_proxy.features.feature import Stores
from doi_proxy.resolver.resolution import Conditions, Origin
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.system.files import print_json
from doi_proxy.system.progress import Bar, progress
from doi_proxy.upstream.source import Priority
from handle_protocol.referral import ResponseCode

#: Entries of which `show` counts the fresh, stale and negative ones without --every-entry. It takes two seconds.
MAX_COUNTED: Final = 200_000


async def show_counts(stores: Stores, *, every_entry: bool) -> int:
    """Print the entries and bytes of the store as JSON, its fresh, stale and negative entries, and whether it works.

    Exit status 1 if it does not. Raises ConfigurationError, StoreError.
    """
    stores.require()
    async with stores.open(read_only=True) as cache:
        tiers = await cache.stats()
        store = tiers.store or StoreStats(tiers.memory_entries, tiers.memory_bytes, True, "memory")
        facts: dict[str, Any] = {"entries": store.entries, "bytes": store.bytes, "registry": store.registry}
        if store.healthy and (every_entry or store.entries <= MAX_COUNTED):
            with progress("counting", store.entries) as bar:
                facts |= await count_entries(cache, time.time(), bar)
        facts |= {"healthy": store.healthy, "detail": store.detail}
    print_json(facts)
    return 0 if store.healthy else 1


async def count_entries(cache: TieredStore, now: float, bar: Bar) -> dict[str, int]:
    """Count the entries that are fresh, stale and negative at `now`, in seconds since the epoch.

    Entries past their hard expiry are not counted, even if the store still has them.
    """
    counts = {"fresh": 0, "stale": 0, "negative": 0}
    async for entry in cache.scan():
        if entry.answer.code is not ResponseCode.SUCCESS:
            counts["negative"] += 1
        else:
            counts["fresh" if entry.is_fresh(now) else "stale"] += 1
        bar.advance(1)
    return counts


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

    The answers to queries that were sent earlier are not stored (see app/doi_proxy/cache/store.py).
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
            await cache.delete(entry.key, announce=False)

    result = await _change(cache, selection, change)
    await cache.end_purge(selection.scope())
    if selection.everything and not soft:
        return PurgeResult(result.count + await cache.forget_registry())
    return result


async def _expire_names(cache: TieredStore, names: Sequence[HandleName]) -> PurgeResult:
    absent = []
    for name in names:
        # Before the purge begins, because that deletes the entry of a name.
        entry = await cache.find(name.key, newest=True)
        if entry is not None and entry.agency is not None:
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
        # Entries that are changed concurrently.
        if len(waiting) == 64:
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
            if (entry := await cache.find(name.key, newest=True)) is not None:
                yield entry
        return
    async for entry in cache.scan("" if selection.prefix is None else selection.scope()):
        if not selection.negative or entry.is_negative:
            yield entry


_NOW: Final = Conditions(authoritative=True, priority=Priority.BULK)


@dataclass(slots=True)
class RefreshResult:
    """How many names were refreshed, how many failed, how many were left out, and the token of the last failure."""

    refreshed: int = 0
    failed: int = 0
    left_out: int = 0
    failure: str | None = None
    failures_in_a_row: int = 0


def require_name(name: HandleName) -> HandleName:
    """Refuse text that cannot be a name: its answer "not found" would be kept. Raises NotADOI."""
    if not name.can_be_handle or not name.suffix:
        raise NotADOI(f"“{name.text[:100]}” is not a DOI name; a DOI name looks like 10.1000/182.")
    return name


async def refresh_prefix(cache: TieredStore, resolver: Resolver, prefix: HandleName, *, limit: int) -> RefreshResult:
    """Fetch up to `limit` names that the cache has under a prefix. An upstream that is a proxy gets `auth`.

    Names beyond the limit are left out, and so are those with a local record. It ends after a minute, or after ten
    failures in a row.
    """
    names, total = await _find_oldest(cache, fold(prefix.key).rstrip("/") + "/", limit)
    result = RefreshResult()
    waiting = iter(names)
    # A client of the admin API waits for the answer.
    deadline = asyncio.get_running_loop().time() + 60.0
    async with asyncio.TaskGroup() as group:
        # Queries at the same time.
        for _ in range(4):
            group.create_task(_work(resolver, waiting, result, deadline))
    result.left_out = total - result.refreshed - result.failed
    return result


async def _find_oldest(cache: TieredStore, scope: str, limit: int) -> tuple[list[HandleName], int]:
    """The names with the oldest answers, and the number of all names."""
    await cache.flush()
    keys = set[str]()
    oldest: list[tuple[float, str]] = []
    async for entry in cache.scan(scope):
        # Valkey may return an entry twice.
        if entry.key not in keys:
            keys.add(entry.key)
            add = heapq.heappush if len(oldest) < limit else heapq.heappushpop
            add(oldest, (-entry.fetched_at, entry.key))
    return [HandleName(key) for _, key in sorted(oldest, reverse=True)], len(keys)


async def _work(resolver: Resolver, waiting: Iterator[HandleName], result: RefreshResult, deadline: float) -> None:
    while result.failures_in_a_row < 10 and asyncio.get_running_loop().time() < deadline:
        name = next(waiting, None)
        if name is None:
            return
        failure: CouldNotVerify | None
        try:
            resolution = await resolver.resolve(name, _NOW)
            if resolution.origin is Origin.LOCAL:
                continue
            failure = resolution.failure
        except CouldNotVerify as error:
            failure = error
        _count(result, failure)


def _count(result: RefreshResult, failure: CouldNotVerify | None) -> None:
    if failure is None:
        result.refreshed += 1
        result.failures_in_a_row = 0
    else:
        result.failed += 1
        result.failures_in_a_row += 1
        result.failure = failure.token
