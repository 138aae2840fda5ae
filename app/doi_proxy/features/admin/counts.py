"""`doi-proxy cache show` without a name: counts the entries of the store, and says whether it works."""

from __future__ import annotations

import time
from typing import Any, Final

from doi_proxy.cache.store import StoreStats
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.command import Stores
from doi_proxy.system.progress import Bar, progress
from doi_proxy.system.standard_streams import print_json
from handle_protocol.answer import ResponseCode

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
