"""Begins a coroutine at once, and makes a task of what is left only if it has to wait.

A redirect whose record is in memory awaits nothing: to begin it costs 1 us, and a task 7 us. Python 3.12 has
`asyncio.eager_task_factory` for this; Debian's Python is 3.11, and here the part that begins is the same for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, NamedTuple, TypeVar

Result = TypeVar("Result")


class Rest(NamedTuple):
    """A coroutine that has begun and waits for `awaited`: a future, or None after `asyncio.sleep(0)`."""

    work: Coroutine[Any, Any, Any]
    awaited: Any

    async def finish(self) -> Any:
        """Continue the work in a task. A cancellation reaches the work, and `finally` in it runs."""
        return await _continue(self)


@coroutine
def _continue(rest: Rest) -> Generator[Any, Any, Any]:
    work, awaited = rest
    if hasattr(awaited, "_asyncio_future_blocking"):
        awaited._asyncio_future_blocking = True
    try:
        while True:
            try:
                sent = yield awaited
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                awaited = work.throw(error)
            else:
                awaited = work.send(sent)
    except StopIteration as end:
        return end.value


def begin(work: Coroutine[Any, Any, Result]) -> Result | Rest:
    """Run a coroutine until it ends or waits. Returns its result, or what is left of it; raises what it raises.

    A task awaits `finish` of what is left. The caller must not be in a task itself: `asyncio.timeout` in the work would
    cancel that one. Work that needs a task awaits `in_task` first.
    """
    try:
        awaited = work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    # A task would take this mark from a future that it waits for. Others may wait for the same one meanwhile.
    if hasattr(awaited, "_asyncio_future_blocking"):
        awaited._asyncio_future_blocking = False
    return Rest(work, awaited)


async def in_task() -> None:
    """Return in a task, which `asyncio.timeout`, `TaskGroup` and anyio need: work that has begun goes on in one."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)
