"""The access log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from multiprocessing.util import Finalize
from random import Random
from typing import Final

from app.features.access_log.access_log import AccessLog
from app.features.access_log.line import LineFormat, LogLine
from app.features.access_log.line_writer import LineWriter
from app.features.access_log.metrics import LOST_LINES
from app.features.access_log.settings import AccessLogSettings
from app.features.feature import Context, Feature, Opened, Service

_STANDARD_OUTPUT: Final = 1
#: Any number: the last lines need nothing that ends before them.
_EXIT_PRIORITY: Final = 0


class LineService(Service):
    """Writes the last lines at the end, and counts those that were lost."""

    def __init__(self, writer: LineWriter, count_lost: Callable[..., None]) -> None:
        self._writer = writer
        self._count_lost = count_lost
        self._counted = 0
        self._at_exit: Finalize | None = None

    async def start(self) -> None:
        """Write the last lines also if the process ends by a fault."""
        # A worker is a fork. It ends without the functions of atexit.
        self._at_exit = Finalize(self, self._writer.close, exitpriority=_EXIT_PRIORITY)

    def tick(self) -> None:
        """Count the lines that were lost."""
        lost = self._writer.lost
        if lost > self._counted:
            self._count_lost(lost - self._counted)
            self._counted = lost

    async def stop(self) -> None:
        """Write the last lines."""
        await asyncio.to_thread(self._writer.close)
        if self._at_exit is not None:
            self._at_exit.cancel()


def new_access_log(privacy_level: int, clock: Callable[[], float], write: Callable[[LogLine], object]) -> AccessLog:
    """A log whose request IDs are random."""
    random_bits = Random().getrandbits  # noqa: S311 - a request ID is not a secret
    return AccessLog(
        privacy_level=privacy_level,
        clock=clock,
        timer=time.perf_counter,
        new_id=lambda: random_bits(64).to_bytes(8).hex(),
        write=write,
    )


def open_access_log(context: Context) -> Opened:
    """The stage that logs each answer."""
    form, level = context.settings.group(AccessLogSettings).access_log, context.facts.privacy_level
    supplied = context.find(AccessLog)
    if supplied is not None or form == "off":
        return Opened(stages=() if supplied is None else (supplied,))
    writer = LineWriter(_STANDARD_OUTPUT, LineFormat(form, level))
    log = new_access_log(level, context.clock, writer.write)
    return Opened(stages=(log,), services=(LineService(writer, context.meter.counter(LOST_LINES)),))


FEATURE: Final = Feature(
    "access_log", "one line for each request, with as much as the privacy level allows", open=open_access_log
)
