"""Counts, removes, expires and refreshes entries of the cache.

Every running proxy on the same store drops its copy of a removed entry within 2 s.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field

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


async def show_counts(stores: Stores, *, every_entry: bool) -> int:
    """Print the entries and bytes of the store as JSON, its fresh, stale and negative entries, and whether it works.

    Exit status 1 if it does not. Raises ConfigurationError, StoreError.
    """
    stores.require()
    async with stores.open(read_only=True) as cache:
        tiers = await cache.stats()
        store = tiers.store or StoreStats(tiers.memory_entries, tiers.memory_bytes, True, "memory")
        facts: dict[str, Any] = {"entries": store.entries, "bytes": store.bytes, "registry": store.registry}
        # Without --every-entry, so many are counted. It takes two seconds.
        if store.healthy and (every_entry or store.entries <= 200_000):
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
    """The entries to purge: a name, those under a prefix, negative entries, or all. Exactly one is set."""

    name: HandleName | None = None
    prefix: HandleName | None = None
    negative: bool = False
    everything: bool = False

    def scope(self) -> str:
        """The scope whose earlier queries a purge refuses. Not for a purge of one name, whose scope is the name."""
        if self.prefix is not None:
            return fold(self.prefix.key).rstrip("/") + "/"
        return EVERYTHING if self.everything else NOT_FOUND


async def purge(cache: TieredStore, selection: Selection, *, soft: bool = False) -> int:
    """Delete entries, or with `soft` make them stale: they stay for outages, and the next request queries the upstream.

    Returns how many there were. The answers to queries that were sent earlier are not stored (see
    app/doi_proxy/cache/store.py).
    """
    if selection.name is not None:
        return await (_expire_name if soft else _delete_name)(cache, selection.name.key)
    if selection.prefix is not None and not soft:
        return await cache.clear_prefix(selection.prefix.key)
    scope = selection.scope()
    await cache.begin_purge(scope)

    async def change(entry: Entry) -> None:
        # Announced one by one, more than 5,000 names would empty the memory of the other processes.
        if soft:
            await cache.expire(entry, announce=False)
        else:
            await cache.delete(entry.key, announce=False)

    count = await _change(cache, selection, change)
    await cache.end_purge(scope)
    if selection.everything and not soft:
        count += await cache.forget_registry()
    return count


async def _delete_name(cache: TieredStore, key: str) -> int:
    was_present = await cache.delete(key)
    await cache.forget_works([key])
    return int(was_present)


async def _expire_name(cache: TieredStore, key: str) -> int:
    # Before the purge begins, because that deletes the entry of a name.
    entry = await cache.find(key, newest=True)
    # A record of an agency is never fresh, and the purge would delete it.
    if entry is None or entry.agency is None:
        await cache.begin_purge(key)
        if entry is not None:
            await cache.expire(entry, announce=False)
        await cache.flush()
    return int(entry is not None)


async def count_selected(cache: TieredStore, selection: Selection, *, soft: bool = False) -> int:
    """Count what `purge` would change. A soft purge leaves registry records as they are."""

    async def leave(_: Entry) -> None:
        return

    count = await _change(cache, selection, leave)
    if not (soft or selection.negative or selection.name is not None):
        count += await cache.count_registry("" if selection.everything else selection.scope())
    return count


async def _change(cache: TieredStore, selection: Selection, change: Callable[[Entry], Awaitable[object]]) -> int:
    found, waiting = set[str](), list[Entry]()
    async for entry in _select(cache, selection):
        found.add(entry.key)
        waiting.append(entry)
        # Entries that are changed concurrently.
        if len(waiting) == 64:
            await _apply(cache, waiting, change)
            waiting.clear()
    await _apply(cache, waiting, change)
    return len(found)


async def _apply(cache: TieredStore, entries: Sequence[Entry], change: Callable[[Entry], Awaitable[object]]) -> None:
    # Concurrently, because each deletion waits until it is durable. The queue of other writes is limited.
    await asyncio.gather(*(change(entry) for entry in entries))
    await cache.flush()


async def _select(cache: TieredStore, selection: Selection) -> AsyncIterator[Entry]:
    if selection.name is not None:
        if (entry := await cache.find(selection.name.key, newest=True)) is not None:
            yield entry
        return
    async for entry in cache.scan("" if selection.prefix is None else selection.scope()):
        if not selection.negative or entry.is_negative:
            yield entry


class PrefixRefreshReport(BaseModel):
    """The result of the refresh of a prefix."""

    prefix: str
    refreshed: int = Field(0, description="Names for which the upstream answered.")
    failed: int = Field(0, description="Names for which it did not. The cache keeps their entries.")
    left_out: int = Field(0, description="Names of the cache beyond `limit`, and those after the refresh was given up.")
    failure: str | None = Field(None, description="The token of the last failure, as in Cache-Status.")


def require_name(name: HandleName) -> HandleName:
    """Refuse text that cannot be a name: its answer "not found" would be kept. Raises NotADOI."""
    if not name.can_be_handle or not name.suffix:
        raise NotADOI(f"“{name.text[:100]}” is not a DOI name; a DOI name looks like 10.1000/182.")
    return name


async def fetch_now(resolver: Resolver, name: HandleName, priority: Priority) -> tuple[Origin | None, str | None]:
    """Query the upstream now. An upstream that is a proxy queries a primary server (`auth`).

    Returns the origin of the answer, None without one, and the token of the failure.
    """
    try:
        resolution = await resolver.resolve(name, Conditions(authoritative=True, priority=priority))
    except CouldNotVerify as failure:
        return None, failure.token
    return resolution.origin, None if resolution.failure is None else resolution.failure.token


async def refresh_prefix(resolver: Resolver, prefix: HandleName, *, limit: int) -> PrefixRefreshReport:
    """Fetch up to `limit` names that the cache has under a prefix.

    Names beyond the limit are left out, and so are those with a local record. It ends after a minute, or after ten
    failures in a row.
    """
    names, total = await _find_oldest(resolver.cache, fold(prefix.key).rstrip("/") + "/", limit)
    report = PrefixRefreshReport(prefix=prefix.text)
    waiting, failures_in_a_row = iter(names), 0
    # A client of the admin API waits for the answer.
    deadline = asyncio.get_running_loop().time() + 60.0

    async def work() -> None:
        nonlocal failures_in_a_row
        while failures_in_a_row < 10 and asyncio.get_running_loop().time() < deadline:
            if (name := next(waiting, None)) is None:
                return
            origin, failure = await fetch_now(resolver, name, Priority.BULK)
            if failure is not None:
                report.failed += 1
                report.failure = failure
                failures_in_a_row += 1
            elif origin is not Origin.LOCAL:
                report.refreshed += 1
                failures_in_a_row = 0

    async with asyncio.TaskGroup() as group:
        # Queries at the same time.
        for _ in range(4):
            group.create_task(work())
    report.left_out = total - report.refreshed - report.failed
    return report


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
