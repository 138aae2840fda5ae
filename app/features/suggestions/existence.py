"""Finds out which of several names exist, with a few queries."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from app.doi.name import HandleName
from app.errors import CouldNotVerify
from app.resolver.demand import Demand
from app.resolver.resolver import Resolver
from app.resolver.single_flight import Replaced
from app.upstream.source import ClientNetwork, Priority

#: Queries that wait or are under way in one process. At the limit, a page is sent without a query.
CONCURRENCY: Final = 8


class Existence:
    """Looks up names that no client requested.

    `queries` limits the upstream queries of one look-up, `concurrency` those that wait or are under way for all clients
    together, and `patience` the seconds that a look-up waits for them. A query has the priority of bulk work and is
    charged to the client. One that takes longer continues in the background.
    """

    def __init__(self, resolver: Resolver, *, queries: int, patience: float, concurrency: int = CONCURRENCY) -> None:
        self._resolver = resolver
        self._queries = queries
        self._concurrency = concurrency
        self._patience = patience
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, name: HandleName) -> bool | None:
        """Whether the name exists. None if memory does not know."""
        answer = self._resolver.find_fresh(name)
        return None if answer is None else answer.is_registered

    async def look_up(self, names: Sequence[HandleName], client: ClientNetwork) -> None:
        """Bring what the store or the upstream knows about the names into memory. Raises nothing."""
        unknown = [name for name in names if await self._resolver.recall(name) is None][: self._queries]
        if not unknown or len(self._tasks) + len(unknown) > self._concurrency:
            return
        tasks = {asyncio.create_task(self._query(name, client)) for name in unknown}
        for task in tasks:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.wait(tasks, timeout=self._patience)

    async def _query(self, name: HandleName, client: ClientNetwork) -> None:
        with suppress(CouldNotVerify, Replaced):
            await self._resolver.resolve(name, Demand(priority=Priority.BULK, client=client))
