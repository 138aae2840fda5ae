"""Keeps the history and the events of `/status` in the store, for the time after a restart."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable
from typing import Final

import msgspec

from app.cache.tiered import TieredStore
from app.features.metrics.history import LENGTH, Point, SharedHistory
from app.features.status.events import MAX_EVENTS, Event, EventLog

#: The name of the note. A release that does not know it leaves it alone.
NOTE: Final = "status"
#: The machines whose history one Valkey server keeps: those that wrote last.
MAX_MACHINES: Final = 8
#: Seconds between two looks whether there is something new to keep: a whole point, or an event.
INTERVAL: Final = 5.0


class Kept(msgspec.Struct):
    """What one machine keeps, and when it wrote that, in seconds since the epoch."""

    points: list[Point]
    events: list[Event]
    saved: int


class StatusKeeper:
    """Restores and saves the history and the events. Of the workers of a machine, the one that records does it."""

    def __init__(
        self, cache: TieredStore, history: SharedHistory, events: EventLog, clock: Callable[[], float], is_shared: bool
    ) -> None:
        """`is_shared` is whether several machines can use the store. Each has its own history, by its host name."""
        self._cache = cache
        self._history = history
        self._events = events
        self._clock = clock
        self._machine = platform.node()[:100] if is_shared else ""
        self._saved: tuple[int, list[Event]] | None = None

    async def run(self, finish: Callable[[], None]) -> None:
        """Keep what is new. When the task is cancelled, `finish` records the rest, which is kept too."""
        if await self._cache.wait_for_store() is None:
            return
        try:
            while True:
                await self._keep()
                await asyncio.sleep(INTERVAL)
        finally:
            finish()
            await self._save()

    async def _keep(self) -> None:
        if not self._history.is_recorder:
            return
        if not self._history.is_restored:
            kept = decode_note(await self._cache.read_note(NOTE)).get(self._machine)
            self._history.restore([] if kept is None else kept.points[-LENGTH:], self._clock())
            if kept is not None:
                self._events.restore(kept.events[-MAX_EVENTS:], kept.saved)
        points = self._history.points()
        newest = (points[-1].start if points else 0), self._events.read()
        if newest != self._saved:
            await self._save()
            self._saved = newest

    async def _save(self) -> None:
        if not self._history.is_recorder or not self._history.is_restored:
            return
        kept = Kept(self._history.points(), self._events.read(), int(self._clock()))

        def change(data: bytes | None) -> bytes:
            machines = sorted(
                ((name, known) for name, known in decode_note(data).items() if name != self._machine),
                key=lambda machine: machine[1].saved,
            )
            return msgspec.json.encode(dict([*machines[1 - MAX_MACHINES :], (self._machine, kept)]))

        await self._cache.change_note(NOTE, change)


def decode_note(data: bytes | None) -> dict[str, Kept]:
    """What each machine keeps. A damaged note counts as none."""
    try:
        return {} if data is None else msgspec.json.decode(data, type=dict[str, Kept])
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
