"""The further names that one request needs, charged to the client that sent the request."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext

from app.doi.name import HandleName
from app.resolver.demand import Demand
from app.resolver.resolution import Resolution
from app.resolver.resolver import Resolver
from app.upstream.source import ClientNetwork, Priority


class Lookup:
    """Resolves prefixes, service handles, includes and the rows of Which RA."""

    def __init__(
        self,
        resolver: Resolver,
        client: ClientNetwork,
        priority: Priority = Priority.PERSON,
        concurrency: int | None = None,
        *,
        only_cached: bool = False,
    ) -> None:
        """`concurrency` limits the upstream queries that wait or are under way. None: no limit.

        With `only_cached`, the cache alone answers.
        """
        self._resolver = resolver
        self._demand = Demand(priority=priority, client=client, only_cached=only_cached)
        self.slots: AbstractAsyncContextManager[None] = (
            nullcontext() if concurrency is None else asyncio.Semaphore(concurrency)
        )

    @property
    def client(self) -> ClientNetwork:
        """The client that the queries are charged to."""
        return self._demand.client

    async def resolve(self, name: HandleName) -> Resolution:
        """Answer a name. An answer from memory needs no slot. Raises CouldNotVerify."""
        found = self._resolver.peek(name)
        if found is not None:
            return found
        async with self.slots:
            return await self._resolver.resolve(name, self._demand)

    def in_background(self) -> Lookup:
        """The same lookup for names that the client does not wait for."""
        return Lookup(self._resolver, self.client, Priority.BACKGROUND, only_cached=self._demand.only_cached)
