"""Keeps the history and the events of `/status` in the store, for the time after a restart.

On a server that several machines share, a service finds its own by its place: its host name and the address that it
listens on. A container has another host name each time it is made. So a place without a history goes on with the newest
one of the same address whose service has ended.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.metrics.history import LENGTH, Point, SharedHistory
from doi_proxy.sharing.events import MAX_EVENTS, Event, EventLog, decode_events

#: The name of the note. A release that does not know it leaves it alone.
NOTE: Final = "status"
#: The services whose history one Valkey server keeps: those that wrote last.
MAX_SERVICES: Final = 8
#: Seconds between two looks whether there is something new to keep: a whole point, or an event.
INTERVAL: Final = 5.0


class Kept(msgspec.Struct):
    """What one service keeps, when it wrote that, in seconds since the epoch, and whether it ended then."""

    points: list[Point]
    events: list[Event]
    saved: int
    has_ended: bool = False


class _Written(msgspec.Struct):
    """The same as it is read: another release may have events of further kinds."""

    points: list[Point]
    events: list[msgspec.Raw]
    saved: int
    has_ended: bool = False


class StatusKeeper:
    """Restores and saves the history and the events. Of the workers of a machine, the one that records does it."""

    def __init__(
        self, cache: TieredStore, history: SharedHistory, events: EventLog, clock: Callable[[], float], place: str
    ) -> None:
        """`place` is empty if only one service can use the store; see `find_place`."""
        self._cache = cache
        self._history = history
        self._events = events
        self._clock = clock
        self._place = place
        #: The places whose history the next save replaces.
        self._replaced = {place}
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
            await self._save(has_ended=True)

    async def _keep(self) -> None:
        if not self._history.is_recorder:
            return
        if not self._history.is_restored:
            known = decode_note(await self._cache.read_note(NOTE))
            earlier = find_earlier(known, self._place)
            kept = None if earlier is None else known[earlier]
            self._replaced |= set() if earlier is None else {earlier}
            self._history.restore([] if kept is None else kept.points[-LENGTH:], self._clock())
            if kept is not None:
                self._events.restore(kept.events[-MAX_EVENTS:], kept.saved)
        points = self._history.points()
        newest = (points[-1].start if points else 0), self._events.read()
        if newest != self._saved and await self._save():
            self._saved = newest

    async def _save(self, *, has_ended: bool = False) -> bool:
        """Returns whether the store has it."""
        if not self._history.is_recorder or not self._history.is_restored:
            return False
        kept = Kept(self._history.points(), self._events.read(), int(self._clock()), has_ended)
        replaced = frozenset(self._replaced)

        def change(data: bytes | None) -> bytes:
            others = sorted(
                ((place, known) for place, known in decode_note(data).items() if place not in replaced),
                key=lambda service: service[1].saved,
            )
            return msgspec.json.encode(dict([*others[1 - MAX_SERVICES :], (self._place, kept)]))

        is_saved = await self._cache.change_note(NOTE, change)
        if is_saved:
            self._replaced = {self._place}
        return is_saved


def find_place(address: str) -> str:
    """The place of the service on this machine that listens on an address."""
    return f"{platform.node()[:100]} {address}"


def find_earlier(known: Mapping[str, Kept], place: str) -> str | None:
    """The place whose history this one goes on with: its own, or the newest that has ended at the same address."""
    if place in known:
        return place
    address = place.rpartition(" ")[2]
    ended = [other for other, kept in known.items() if kept.has_ended and other.rpartition(" ")[2] == address]
    return max(ended, key=lambda other: known[other].saved, default=None)


def decode_note(data: bytes | None) -> dict[str, Kept]:
    """What each service keeps, by its place. A damaged note counts as none, and so does a forged event."""
    if data is None:
        return {}
    try:
        found = msgspec.json.decode(data, type=dict[str, _Written])
        return {
            place: Kept(written.points, decode_events(written.events), written.saved, written.has_ended)
            for place, written in found.items()
        }
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {}
