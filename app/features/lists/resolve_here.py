"""Resolves the names of lists in this process, with the store and the budget of a running proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

from app.assembly.settings import Settings
from app.features.command_store import open_for_batches
from app.features.feature import Observers
from app.features.lists.batch import BatchInput
from app.features.lists.name_lookup import BatchOptions
from app.features.lists.opening import build_batches
from app.features.lists.verdict import Row
from app.upstream.guard import UNSENT_OUTCOMES


@asynccontextmanager
async def open_rows(
    settings: Settings, inputs: AsyncIterator[BatchInput], options: BatchOptions, count_query: Callable[[], None]
) -> AsyncIterator[AsyncIterator[list[Row]]]:
    """The rows of the inputs, in groups. `count_query` is called for each upstream query."""
    observers = Observers(upstream=lambda number: _QueryCounter(count_query))
    async with (
        open_for_batches(settings, observers) as core,
        aclosing(build_batches(settings, core).groups(inputs, options)) as groups,
    ):
        yield groups


class _QueryCounter:
    """Counts the queries that were sent."""

    def __init__(self, count_query: Callable[[], None]) -> None:
        self._count_query = count_query

    def record_query(self, outcome: str, seconds: float) -> None:
        """See UpstreamObserver."""
        if outcome not in UNSENT_OUTCOMES:
            self._count_query()
