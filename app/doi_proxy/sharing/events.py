"""The last events of a service. They have counts and times: no name, no client.

The workers of a machine share them. What several workers saw is one event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated, Final, Literal

import msgspec

from doi_proxy.errors import UpstreamPaused
from doi_proxy.sharing.memory import SharedMemory

#: Seconds since the epoch, until the year 9999. An event that is read may be forged.
Moment = Annotated[int, msgspec.Meta(ge=0, lt=253_402_300_800)]
EventKind = Literal[
    "start",
    "drain",
    "reload",
    "reload-failed",
    "worker",
    "clock",
    "purge",
    "deny",
    "outage",
    "pause",
    "refusal",
    "store",
]
#: The events that are kept.
MAX_EVENTS: Final = 30
#: Characters of a detail that is read.
_MAX_DETAIL: Final = 1_000
#: Seconds between two reports of one event, by different workers or in a row.
NEAR: Final = 10
#: Seconds between two reports of an event that goes on. Without one for ABANDONED seconds, its worker has ended.
REPORTED: Final = 10
ABANDONED: Final = 30
#: The kinds whose counts are added.
_COUNTED: Final = frozenset({"purge", "deny", "worker"})
#: The kinds that have an end.
LASTING: Final = frozenset({"outage", "pause", "refusal", "store"})
#: The cause of a pause in a worker that obeys the pause of another one.
_OBEYED: Final = UpstreamPaused.token


class Event(msgspec.Struct, frozen=True):
    """An event. One that lasts, without `until`, goes on.

    `detail` is the host of an upstream, the version of a start, the name of a worker, or the direction in which a clock
    was set. `cause` is the token of an error, and `sign` narrows it down; see system.incidents. The cause of the end of
    a worker is "silent", "signal" or "status". `count` is the number of entries of a purge, of denials, of ends of a
    worker, or of the seconds by which a clock was set. `seen` is the last report of what goes on.
    """

    kind: EventKind
    at: Moment
    until: Moment | None = None
    detail: Annotated[str, msgspec.Meta(max_length=_MAX_DETAIL)] = ""
    count: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] = 1
    cause: Annotated[str, msgspec.Meta(max_length=_MAX_DETAIL)] = ""
    sign: Annotated[str, msgspec.Meta(max_length=_MAX_DETAIL)] = ""
    seen: Moment = 0


def add_event(events: Iterable[Event], new: Event) -> list[Event]:
    """The events with another one, at most MAX_EVENTS. Another report of a known event changes that in its place.

    They are in the order of their first reports, not of their times: after the clock was set back, the newest event has
    the earliest time, and would be dropped at once.
    """
    kept, place = list[Event](), MAX_EVENTS
    for event in events:
        if _is_same(event, new):
            new, place = _join(event, new), min(place, len(kept))
        else:
            kept.append(event)
    kept.insert(place, new)
    return kept[-MAX_EVENTS:]


def _is_same(event: Event, new: Event) -> bool:
    if (event.kind, event.detail) != (new.kind, new.detail):
        return False
    if (event.cause, event.sign) != (new.cause, new.sign) and _OBEYED not in (event.cause, new.cause):
        return False
    if event.kind in LASTING:
        return event.until is None or new.at <= event.until + NEAR
    return abs(new.at - (event.until or event.at)) <= NEAR


def _join(event: Event, new: Event) -> Event:
    is_counted = event.kind in _COUNTED
    cause = new if event.cause == _OBEYED else event
    return msgspec.structs.replace(
        event,
        at=min(event.at, new.at),
        until=new.until if event.kind in LASTING else new.at if is_counted else event.until,
        count=event.count + new.count if is_counted else event.count,
        cause=cause.cause,
        sign=cause.sign,
        seen=max(event.seen, new.seen),
    )


def end_abandoned(events: Iterable[Event], now: float) -> list[Event]:
    """The events, with an end for those that go on and whose worker has ended: the last report of it."""
    return [
        msgspec.structs.replace(event, until=max(event.at, event.seen))
        if event.kind in LASTING and event.until is None and abs(now - event.seen) > ABANDONED
        else event
        for event in events
    ]


class EventLog:
    """The events in the memory that the workers share."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory

    def add(self, *new: Event) -> None:
        """Add events."""

        def change(events: list[Event]) -> list[Event]:
            for event in new:
                events = add_event(events, event)
            return events

        self._change(change)

    def end_abandoned(self, now: float) -> None:
        """End the events that go on, and whose worker has ended. `now` is in seconds since the epoch."""
        events = self.read()
        if end_abandoned(events, now) != events:
            self._change(lambda events: end_abandoned(events, now))

    def record(self, kind: EventKind, now: float, count: int = 1) -> None:
        """Record what an operator did, now. `now` is in seconds since the epoch."""
        self.add(Event(kind, int(now), count=count))

    def restore(self, earlier: Iterable[Event], ended: int) -> None:
        """Put the events of an earlier run first, which ended at this time, and its outages with it."""
        known = [
            msgspec.structs.replace(event, until=max(event.at, ended))
            if event.kind in LASTING and event.until is None
            else event
            for event in earlier
        ]
        self._change(lambda events: [*known, *events][-MAX_EVENTS:])

    def read(self) -> list[Event]:
        """The events, in the order of their first reports."""
        return _read(self._memory.read())

    def _change(self, change: Callable[[list[Event]], list[Event]]) -> None:
        self._memory.change(lambda content: msgspec.json.encode(change(_read(content))), waits=True)


def decode_events(written: Iterable[msgspec.Raw]) -> list[Event]:
    """The events, without those that are forged or of a kind that only another release knows."""
    events = list[Event]()
    for event in written:
        with suppress(msgspec.DecodeError):
            events.append(msgspec.json.decode(event, type=Event))
    return events


def _read(content: bytes) -> list[Event]:
    try:
        return msgspec.json.decode(content, type=list[Event])
    except msgspec.DecodeError:
        return []
