"""Replication: a proxy follows another one, its primary, by pages of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from app.cache.address import read_store_path
from app.features.admin.gate import AdminGate
from app.features.feature import NOTHING, Context, Feature, Opened
from app.features.follow.change_feed import ChangeFeed
from app.features.follow.http import add_changes
from app.features.follow.metrics import FOLLOWED, PAGE_BYTES, PAGES
from app.features.follow.parents import read_parents

if TYPE_CHECKING:
    from app.cache.sqlite.tables import Table


def tables() -> Sequence[Table]:
    """The parents of a store of an earlier release."""
    from app.features.follow.sqlite_parents import PARENTS_TABLE  # noqa: PLC0415 - only SQLite stores need it

    return (PARENTS_TABLE,)


def open_changes(context: Context) -> Opened:
    """The route of changes, behind the gate of the admin API."""
    count, count_bytes = context.meter.counter(PAGES), context.meter.counter(PAGE_BYTES)

    def record(result: str, length: int) -> None:
        count(result)
        count_bytes(length)

    async def followed_at() -> float:
        # Of several parents, the one that was followed the longest ago.
        parents = await read_parents(context.core.cache)
        return min((parent.completed_at for parent in parents), default=0.0)

    context.meter.shared_gauge(FOLLOWED, followed_at)
    gate = context.find(AdminGate)
    if gate is not None:
        feed = ChangeFeed(read_store_path(context.facts.store_url), context.clock, record=record)
        add_changes(gate.app, feed, context.core.link.base)
    return NOTHING


FEATURE: Final = Feature(
    "follow",
    "replication: `cache pull` follows another proxy by pages of changes",
    needs=("admin", "bundles", "registry", "proxy_client"),
    open=open_changes,
    tables=tables,
)
