"""One question per name at a time, whoever waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class SingleFlight(Generic[Result]):
    """Work in flight by key. Callers share the work; none of them can cancel it by going away."""

    def __init__(self) -> None:
        self._flights: dict[str, asyncio.Task[Result]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def join(self, key: str, work: Callable[[], Awaitable[Result]]) -> tuple[asyncio.Task[Result], bool]:
        """The task that does the work of this key, and whether it was begun just now. Await it by `shielded`."""
        task = self._flights.get(key)
        if task is not None:
            return task, False
        task = asyncio.ensure_future(_run(work))
        self._flights[key] = task
        task.add_done_callback(lambda done: self._land(key, done))
        return task, True

    def _land(self, key: str, done: asyncio.Task[Result]) -> None:
        self._flights.pop(key, None)
        if not done.cancelled():
            done.exception()  # retrieved here, so that work whose callers all left is not reported as unheeded

    async def close(self) -> None:
        """Cancel what is in flight and wait until it has ended."""
        tasks = list(self._flights.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(work: Callable[[], Awaitable[Result]]) -> Result:
    return await work()


async def shielded(task: asyncio.Task[Result], seconds: float | None = None) -> Result:
    """The task's result; the caller's own cancellation does not reach it. Raises TimeoutError after `seconds`."""
    async with asyncio.timeout(seconds):
        return await asyncio.shield(task)
