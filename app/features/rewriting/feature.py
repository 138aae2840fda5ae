"""Stores of earlier releases get the layout of this one."""

from __future__ import annotations

from typing import Final

from app.cache.tiered import TieredStore
from app.features.feature import NOTHING, Context, Feature, Opened, Service
from app.features.rewriting.rewriting import rewrite_entries
from app.features.store_format import Rewritable


class RewritingService(Service):
    """Rewrites the entries of a store. Of all processes that share it, one works at a time."""

    def __init__(self, cache: TieredStore) -> None:
        self._cache = cache

    async def run(self) -> None:
        """Rewrite all of them, and end."""
        await rewrite_entries(self._cache.wait_for_store)


def open_rewriting(context: Context) -> Opened:
    """A service, if the store can have entries of an earlier release."""
    cache = context.core.cache
    store: object = cache.store
    has_work = cache.waits_for_store or isinstance(store, Rewritable)
    return Opened(services=(RewritingService(cache),)) if has_work else NOTHING


FEATURE: Final = Feature(
    "rewriting",
    "entries of a store of an earlier release, rewritten beside the requests",
    open=open_rewriting,
)
