"""The last events of a service. They have counts and times: no name, no client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

EventKind = Literal[
    "start",
    "drain",
    "reload",
    "reload-failed",
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
#: Seconds between two events that count as one: a purge after a purge, or an outage that returns at once.
NEAR: Final = 10
#: The kinds whose counts are added.
_COUNTED: Final = frozenset({"purge", "deny"})
#: The kinds that have an end.
LASTING: Final = frozenset({"outage", "pause", "refusal", "store"})


@dataclass(frozen=True, slots=True)
class Event:
    """An event. Times are in seconds since the epoch. One that lasts, without `until`, goes on.

    `detail` is the host of an upstream, the version of a start, or the direction in which a clock was set. `cause` is
    the token of an error, and `sign` narrows it down; see system.incidents. `count` is the number of entries of a
    purge, of denials, or of the seconds by which a clock was set.
    """

    kind: EventKind
    at: int
    until: int | None = None
    detail: str = ""
    count: int = 1
    cause: str = ""
    sign: str = ""


class EventLog:
    """The events of one process, at most MAX_EVENTS, in memory."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def add(self, new: Event) -> None:
        """Add an event. Another report of a known one changes that in its place.

        Events are in the order of their first reports, not of their times: after the clock was set back, the newest
        event has the earliest time, and would be dropped at once.
        """
        for place in reversed(range(len(self._events))):
            if _is_same(self._events[place], new):
                self._events[place] = _join(self._events[place], new)
                return
        self._events = [*self._events, new][-MAX_EVENTS:]

    def record(self, kind: EventKind, now: float, count: int = 1) -> None:
        """Record what an operator did, now. `now` is in seconds since the epoch."""
        self.add(Event(kind, int(now), count=count))

    def read(self) -> list[Event]:
        """The events, in the order of their first reports."""
        return list(self._events)


def _is_same(event: Event, new: Event) -> bool:
    if (event.kind, event.detail, event.cause, event.sign) != (new.kind, new.detail, new.cause, new.sign):
        return False
    if event.kind in LASTING:
        return event.until is None or new.at <= event.until + NEAR
    return event.kind in _COUNTED and abs(new.at - (event.until or event.at)) <= NEAR


def _join(event: Event, new: Event) -> Event:
    if event.kind in _COUNTED:
        return replace(event, until=new.at, count=event.count + new.count)
    return replace(event, until=None if new.until is None else max(event.at, new.until))
