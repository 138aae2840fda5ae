"""A lock that clients hold in turn, however many requests each has: one waits for at most two of each other client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from doi_proxy.rationing import ShareTree

#: Holds a lock for one client. Each call is for one `async with`.
HoldTurn = Callable[[], AbstractAsyncContextManager[None]]


class FairLock:
    """See the module. The networks that contain a client take turns too: see ShareTree."""

    def __init__(self) -> None:
        self._waiting = ShareTree[asyncio.Event]()
        self._is_held = False

    @asynccontextmanager
    async def hold(self, client: str) -> AsyncIterator[None]:
        """Hold the lock for a client."""
        if self._is_held:
            await self._wait(client)
        self._is_held = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, client: str) -> None:
        turn = asyncio.Event()
        self._waiting.add(client, turn)
        try:
            await turn.wait()
        except asyncio.CancelledError:
            if turn.is_set():
                self._pass_on()
            else:
                self._waiting.remove(client, turn)
            raise

    def _pass_on(self) -> None:
        """Give the lock to the next request, or free it. It is held in between, so no newcomer overtakes."""
        self._is_held = False
        for client, turn in self._waiting.turns():
            self._waiting.end_turn(client)
            # Only requests wait, and each has a client.
            self._waiting.remove(client, turn)
            self._is_held = True
            turn.set()
            return
