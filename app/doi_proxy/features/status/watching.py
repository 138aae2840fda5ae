"""Records as events what begins, ends and happens in this worker. All workers share the events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from msgspec import structs

from doi_proxy.features.feature import Context, Core
from doi_proxy.sharing.events import REPORTED, Event
from doi_proxy.system.incidents import Incident, Incidents
from doi_proxy.system.meter import CounterData, GaugeData

#: The smallest change of the clock that is an event, in seconds. A slow turn of the event loop takes less.
MIN_CLOCK_STEP: Final = 5.0
_STEPS: Final = CounterData("clock_steps", "Times at which a worker found the clock set, or the machine had slept.")
#: Any worker's clock is that of the machine. Prometheus compares it with its own.
_TIME: Final = GaugeData("time_seconds", "Time of this machine, in seconds since 1970.", "livemostrecent")
_RELOAD: Final = GaugeData(
    "reload_failed", "1 while something could not be used at the last reload, else 0.", "livemax"
)


class EventWatcher:
    """Watches a worker. An event that lasts is reported again until it ends, so the end of a worker ends it too."""

    def __init__(self, context: Context, core: Core) -> None:
        self._core = core
        self._clock = context.clock
        self._events = context.events
        self._reloads = context.reloads
        #: The incidents that go on, with their event.
        self._under_way: dict[tuple[str, Incident], Event] = {}
        self._is_draining = False
        self._reloads_seen = context.reloads.reloads
        self._epoch = context.clock() - time.monotonic()
        self._count_step = core.meter.counter(_STEPS)
        core.meter.gauge(_TIME, context.clock)
        core.meter.gauge(_RELOAD, lambda: context.reloads.reload_failed)

    def watch(self) -> None:
        """Record what has begun, ended or happened since the last call."""
        now = self._clock()
        upstream = self._core.upstream
        if not upstream.budget.waiting:
            upstream.budget.log.notice_quiet()
        self._watch_clock(now)
        self._watch_incidents(now)
        if self._reloads.draining and not self._is_draining:
            self._is_draining = True
            self._events.add(Event("drain", int(now)))
        if self._reloads.reloads != self._reloads_seen:
            self._reloads_seen = self._reloads.reloads
            self._events.add(Event("reload-failed" if self._reloads.reload_failed else "reload", int(now)))

    def _watch_clock(self, now: float) -> None:
        before, self._epoch = self._epoch, now - time.monotonic()
        step = self._epoch - before
        if abs(step) >= MIN_CLOCK_STEP:
            self._count_step()
            self._events.add(Event("clock", int(now), detail="forward" if step > 0 else "back", count=round(abs(step))))

    def _watch_incidents(self, now: float) -> None:
        reports, under_way = list[Event](), dict[tuple[str, Incident], Event]()
        for host, incidents, epoch in self._list_incidents():
            for incident in incidents.read():
                key = host, replace(incident, ended=None)
                event = self._under_way.get(key) or _describe(incident, host, epoch)
                if incident.ended is not None:
                    reports.append(structs.replace(event, until=max(event.at, int(epoch + incident.ended))))
                    continue
                if not 0 <= now - event.seen < REPORTED:
                    event = structs.replace(event, seen=int(now))
                    reports.append(event)
                under_way[key] = event
        self._under_way = under_way
        if reports:
            self._events.add(*reports)

    def _list_incidents(self) -> Iterator[tuple[str, Incidents, float]]:
        """The incidents with the host of their upstream, and what their times need to count since 1970."""
        upstream, cache = self._core.upstream, self._core.cache
        for url, guard in upstream.guards.items():
            for incidents in (guard.log.outages, guard.log.pauses):
                yield name_upstream(url), incidents, self._epoch
        yield "", upstream.budget.log.refusals, self._epoch
        for incidents in cache.incidents:
            yield "", incidents, 0.0


def name_upstream(url: str) -> str:
    """The host of an upstream, as the page shows it."""
    return urlsplit(url).hostname or "handle servers"


def _describe(incident: Incident, host: str, epoch: float) -> Event:
    cause = incident.cause
    return Event(incident.kind, int(epoch + incident.began), detail=host, cause=cause.token, sign=cause.sign)
