"""Bounds how long work without waiting holds the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

#: Seconds, after which the event loop serves other requests. A row takes 20 to 200 microseconds, with suggestions up to
#: a millisecond. Turns of 16 rows held the event loop for up to 27 ms of processor time, these for up to 3 ms.
_LENGTH: Final = 0.000_5


class Turn:
    """The time that one batch has held the event loop. `timer` is monotonic, in seconds."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._began = timer()

    def is_over(self) -> bool:
        """Whether other requests come first now."""
        return self._timer() - self._began >= _LENGTH

    async def yield_if_over(self) -> None:
        """Let the event loop serve other requests, and begin the next turn."""
        if self.is_over():
            await asyncio.sleep(0)
            self._began = self._timer()
