"""Records as events what begins, ends and happens in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from doi_proxy.features.feature import Context, Core
from doi_proxy.system.events import Event
from doi_proxy.system.incidents import Incidents
from doi_proxy.system.meter import CounterData, GaugeData

#: The smallest change of the clock that is an event, in seconds. A slow turn of the event loop takes less.
MIN_CLOCK_STEP: Final = 5.0
_STEPS: Final = CounterData("clock_steps", "Times at which the process found the clock set, or the machine had slept.")
#: Prometheus compares it with its own clock.
_TIME: Final = GaugeData("time_seconds", "Time of this machine, in seconds since 1970.")
_RELOAD: Final = GaugeData("reload_failed", "1 while something could not be used at the last reload, else 0.")


class EventWatcher:
    """Watches the process. An event that lasts is reported again until it ends."""

    def __init__(self, context: Context, core: Core) -> None:
        self._core = core
        self._clock = context.clock
        self._events = context.events
        self._reloads = context.reloads
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
        self._watch_incidents()
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

    def _watch_incidents(self) -> None:
        for host, incidents, epoch in self._list_incidents():
            for incident in incidents.read():
                cause, began = incident.cause, int(epoch + incident.began)
                until = None if incident.ended is None else max(began, int(epoch + incident.ended))
                self._events.add(Event(incident.kind, began, until, host, cause=cause.token, sign=cause.sign))

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
