"""`doi-proxy cache stats`: what the store holds and how it is."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from app.bulk.progress import progress
from app.cache.store import StoreStats
from app.cache.tiered import TieredStore
from app.cli.cache_store import opened, require_store
from app.handle.answer import ResponseCode
from app.settings import Settings

#: Entries up to which each is looked at without being asked for: two seconds.
MOST_LOOKED_AT: Final = 200_000
_STEP: Final = 1_000


async def show_stats(settings: Settings, *, as_json: bool, every_entry: bool) -> int:
    """Print how many entries and bytes, how many fresh, stale and negative ones, and whether the store works.

    Exit status 1 where it does not. Raises ConfigurationError, StoreError.
    """
    require_store(settings)
    async with opened(settings, read_only=True) as cache:
        told = await cache.stats()
        store = told.store or StoreStats(told.memory_entries, told.memory_bytes, True, "memory")
        facts: dict[str, Any] = {"entries": store.entries, "bytes": store.bytes}
        if store.healthy and (every_entry or store.entries <= MOST_LOOKED_AT):
            facts |= await _count(cache, store.entries)
        facts |= {"healthy": store.healthy, "detail": store.detail}
        _print(facts, as_json)
    return 0 if store.healthy else 1


async def _count(cache: TieredStore, entries: int) -> dict[str, int]:
    """What the entries are; those past their hard expiry are not there any more, whatever still lies in the file."""
    counts = {"fresh": 0, "stale": 0, "negative": 0}
    with progress("counting", entries) as bar:
        now, looked_at = time.time(), 0
        async for entry in cache.scan():
            if entry.answer.code is not ResponseCode.SUCCESS:
                counts["negative"] += 1
            else:
                counts["fresh" if entry.is_fresh(now) else "stale"] += 1
            looked_at += 1
            if looked_at % _STEP == 0:
                bar.advance(_STEP)
    return counts


def _print(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts))
        return
    for name, value in facts.items():
        shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        print(f"{name + ':':10}{shown}")
