"""Stores of earlier releases get the layout of this one."""

from __future__ import annotations

from typing import Final

from app.cache.upgrade import Rewritable
from app.features.feature import NOTHING, Context, Feature, Opened, Service
from app.features.rewriting.rewriting import rewrite_entries


class RewritingService(Service):
    """Rewrites the entries of a store. Of all processes that share it, one works at a time."""

    def __init__(self, store: Rewritable) -> None:
        self._store = store

    async def run(self) -> None:
        """Rewrite all of them, and end."""
        await rewrite_entries(self._store)


def open_rewriting(context: Context) -> Opened:
    """A service, if the store can have entries of an earlier release."""
    store: object = context.core.cache.store
    return Opened(services=(RewritingService(store),)) if isinstance(store, Rewritable) else NOTHING


FEATURE: Final = Feature(
    "rewriting",
    "entries of a store of an earlier release, rewritten beside the requests",
    open=open_rewriting,
)
