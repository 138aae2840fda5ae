"""The keys near a key, in both tiers of the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.cache.store import NearKeys, SearchableStore
from app.cache.tiered import TieredStore
from app.errors import StoreError


async def find_near(cache: TieredStore, key: str, candidates: Sequence[str]) -> NearKeys:
    """What memory and the store have of the candidates, and the registry keys next to `key`.

    A Valkey server is not searched: it would be a message of 50 kB for each page.
    """
    found, store = NearKeys(), cache.store
    if isinstance(store, SearchableStore):
        try:
            found = await store.find_near(key, candidates)
        except StoreError:
            found = NearKeys()  # a request that needs the store reports it
    recent = cache.memory.list_known(candidates)
    return replace(found, known=list(dict.fromkeys([*found.known, *recent])))
