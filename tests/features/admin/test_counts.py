"""Entries are counted by what they are now."""

from __future__ import annotations

import pytest

from app.cache.memory import MemoryStore
from app.cache.tiered import TieredStore
from app.features.admin.counts import count_entries
from app.system.progress import Bar
from tests.cache.entries import NOW, entry, missing
from tests.clock import Clock

pytestmark = pytest.mark.anyio


async def test_fresh_stale_and_negative_entries_are_counted_apart() -> None:
    clock = Clock(NOW)
    cache = TieredStore(MemoryStore(1_000_000, clock=clock), None, clock=clock, ceiling=86_400.0)
    for one in (entry("10.1000/1"), entry("10.1000/2", ttl=10.0), missing()):
        await cache.put(one)
    assert await count_entries(cache, NOW + 20, Bar()) == {"fresh": 1, "stale": 1, "negative": 1}
