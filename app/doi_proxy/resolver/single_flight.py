"""At most one upstream query per name at a time, shared by all requests for that name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from doi_proxy.errors import CouldNotVerify, UpstreamTimeout
from doi_proxy.upstream.budget import SLOW_AFTER
from doi_proxy.upstream.source import ClientNetwork, WaitingClients

Result = TypeVar("Result")
_SLOW_UPSTREAM: Final = "The upstream is too slow for this request. Its answer will be cached; try again later."


class Replaced(Exception):
    """The work was cancelled, because more urgent work of the same key replaced it. Join that work instead."""


@dataclass(slots=True)
class _Flight(Generic[Result]):
    task: asyncio.Task[Result]
    urgent: bool
    waiters: WaitingClients


class SingleFlight(Generic[Result]):
    """Work in flight by key. Callers share the work. The cancellation of a caller does not cancel it."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[Result]] = {}
        self._closed = False

    def join(
        self,
        key: str,
        work: Callable[[WaitingClients], Coroutine[Any, Any, Result]],
        *,
        urgent: bool = True,
        client: ClientNetwork = None,
    ) -> tuple[asyncio.Task[Result], bool]:
        """Return the task for this key, and whether it is new. Await it with `await_shielded`.

        Urgent work replaces other work that still waits for its turn (see WaitingClients.is_sent). A `client` that
        joins waiting work waits in its own line too. Work that was refused to the earlier clients is replaced.
        """
        if self._closed:
            raise asyncio.CancelledError
        flight = self._flights.get(key)
        if flight is not None and (flight.waiters.is_sent or flight.urgent or not urgent):
            if client is not None and not flight.waiters.is_sent:
                flight.waiters.join(client)
            if not flight.waiters.refused:
                return flight.task, False
        elif flight is not None:
            flight.task.cancel()
        waiters = WaitingClients({client: None})
        task = asyncio.create_task(work(waiters))
        self._flights[key] = flight = _Flight(task, urgent, waiters)
        task.add_done_callback(lambda done: self._land(key, flight))
        return task, True

    async def wait(self, key: str, task: asyncio.Task[Result], due: float | None) -> Result:
        """Await a query until `due`, a time of the loop's clock. Raises CouldNotVerify, which says what was slow.

        The query continues: other requests wait for it, or will find its answer.
        """
        try:
            return await await_shielded(task, due)
        except TimeoutError:
            raise self.explain_delay(key) from None

    def explain_delay(self, key: str) -> CouldNotVerify:
        """Why the query of a key has no answer yet: the upstream is slow, or what the query lacks to be sent."""
        flight = self._flights.get(key)
        if flight is None:
            return UpstreamTimeout(_SLOW_UPSTREAM)
        waiters = flight.waiters
        if waiters.find_lack is not None:  # also that of a second question, which confirms the answer to the first
            return waiters.find_lack()
        # A query that has just got its turn spent the request's time in waiting for it.
        is_slow = asyncio.get_running_loop().time() - waiters.sent_at >= SLOW_AFTER
        return UpstreamTimeout(_SLOW_UPSTREAM) if is_slow or waiters.lacked is None else waiters.lacked

    def _land(self, key: str, flight: _Flight[Result]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
        if not flight.task.cancelled():
            # asyncio reports an exception that is never retrieved, and all callers may have left.
            flight.task.exception()

    async def close(self) -> None:
        """Cancel all work in flight, wait for its end, and accept no more work."""
        self._closed = True
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def await_shielded(task: asyncio.Task[Result], until: float | None = None) -> Result:
    """Await the task without passing the caller's own cancellation on to it.

    Raises TimeoutError at `until`, a time of the loop's clock, and Replaced if more urgent work replaced the task.
    """
    # asyncio.shield would log the failure of a task whose caller has left (Python 3.14).
    if not task.done():
        seconds = None if until is None else max(0.0, until - asyncio.get_running_loop().time())
        await asyncio.wait((task,), timeout=seconds)
    if not task.done():
        raise TimeoutError
    if task.cancelled():
        raise Replaced
    return task.result()
