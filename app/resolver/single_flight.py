"""One question per name at a time, whoever waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from app.upstream.source import ClientNetwork, Waiters

Result = TypeVar("Result")


class Overtaken(Exception):
    """The work was given up for more urgent work of the same key: join that."""


@dataclass(slots=True)
class _Flight(Generic[Result]):
    task: asyncio.Task[Result]
    urgent: bool
    waiters: Waiters
    #: Whether the question has left; before that, it only waits for its turn.
    asking: bool = False


class SingleFlight(Generic[Result]):
    """Work in flight by key. Callers share the work; none of them can cancel it by going away."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[Result]] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._flights)

    def join(
        self,
        key: str,
        work: Callable[[Waiters], Awaitable[Result]],
        *,
        urgent: bool = True,
        client: ClientNetwork = None,
    ) -> tuple[asyncio.Task[Result], bool]:
        """The task that does the work of this key, and whether it was begun just now. Await it by `shielded`.

        Urgent work takes the place of other work that only waits for its turn (see `asking`). A `client` that joins
        such work waits with it in its own line. Work that was refused for the clients before is begun anew.
        """
        if self._closed:
            raise asyncio.CancelledError
        flight = self._flights.get(key)
        if flight is not None and (flight.asking or flight.urgent or not urgent):
            if client is not None and not flight.asking:
                flight.waiters.join(client)
            if not flight.waiters.refused:
                return flight.task, False
        elif flight is not None:
            flight.task.cancel()
        waiters = Waiters(client)
        task = asyncio.ensure_future(_run(work, waiters))
        self._flights[key] = flight = _Flight(task, urgent, waiters)
        task.add_done_callback(lambda done: self._land(key, flight))
        return task, True

    def asking(self, key: str) -> None:
        """The question of this key has left; nothing overtakes it any more."""
        flight = self._flights.get(key)
        if flight is not None:
            flight.asking = True

    def _land(self, key: str, flight: _Flight[Result]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not flight.task.cancelled():
            flight.task.exception()  # retrieved here, so that work whose callers all left is not reported as unheeded

    async def close(self) -> None:
        """Cancel what is in flight, wait until it has ended, and begin nothing any more."""
        self._closed = True
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(work: Callable[[Waiters], Awaitable[Result]], waiters: Waiters) -> Result:
    return await work(waiters)


async def shielded(task: asyncio.Task[Result], seconds: float | None = None) -> Result:
    """The task's result; the caller's own cancellation does not reach it.

    Raises TimeoutError after `seconds`, and Overtaken where the work was given up for more urgent work.
    """
    async with asyncio.timeout(seconds):
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise Overtaken from None
            raise
