"""Replication: a store is the replica of another proxy, its primary, and pulls pages of changes from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.features.feature import Context, Feature, Opened
from app.features.follow.metrics import PAGE_BYTES, PAGES, PULLED, PULLED_OLD_NAME
from app.features.follow.primaries import read_primaries
from app.features.store_url import read_store_path

if TYPE_CHECKING:
    from fastapi import FastAPI

    from app.web.operations import Face

#: The path of the changes.
CHANGES_PATH: Final = b"/admin/changes"


def open_changes(context: Context) -> Opened:
    """The route of changes, behind the gate of the admin API."""
    count, count_bytes = context.meter.counter(PAGES), context.meter.counter(PAGE_BYTES)

    def record(result: str, length: int) -> None:
        count(result)
        count_bytes(length)

    async def pulled_at() -> float:
        # Of several primaries, the one whose last complete pull was the longest ago.
        primaries = await read_primaries(context.core.cache)
        return min((primary.completed_at for primary in primaries), default=0.0)

    for data in (PULLED, PULLED_OLD_NAME):
        context.meter.shared_gauge(data, pulled_at)

    def add(app: FastAPI, face: Face) -> None:
        from app.features.follow.change_feed import ChangeFeed  # noqa: PLC0415 - only for the admin API
        from app.features.follow.http import add_changes  # noqa: PLC0415 - as above

        feed = ChangeFeed(read_store_path(context.facts.store_url), context.clock, record=record)
        add_changes(app, feed, face.link.base)

    return Opened(operator_routes={CHANGES_PATH: add})


FEATURE: Final = Feature(
    "follow",
    "replication: `cache pull` makes a store the replica of another proxy",
    needs=("bundles", "registry", "sqlite"),
    open=open_changes,
)
