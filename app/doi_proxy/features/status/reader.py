"""Reads what `/status` shows: the counters and the state of this process, and the last 24 hours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from operator import attrgetter, itemgetter
from typing import Final, Literal
from urllib.parse import urlsplit

from doi_proxy.errors import NotInBundle, PrefixDenied
from doi_proxy.features.feature import Context, Core
from doi_proxy.features.metrics.feature import Metrics
from doi_proxy.features.metrics.history import History, Point, read_totals
from doi_proxy.features.status import models
from doi_proxy.features.status.clients import ClientCounts
from doi_proxy.features.status.summary import RECENT, Facts, read_english, summarize, write_problem
from doi_proxy.system.check import Cause, CounterData, Event, GaugeData, Incidents, Service
from doi_proxy.system.version import read_version
from doi_proxy.upstream.guard import BreakerState

_STEPS: Final = CounterData("clock_steps", "Times at which the process found the clock set, or the machine had slept.")
#: Prometheus compares it with its own clock.
_TIME: Final = GaugeData("time_seconds", "Time of this machine, in seconds since 1970.")
_RELOAD: Final = GaugeData("reload_failed", "1 while settings, or a file that they name, cannot be used, else 0.")


class EventWatcher:
    """Watches the process. An event that lasts is reported again until it ends."""

    def __init__(self, context: Context, core: Core) -> None:
        self._core = core
        self._clock = context.clock
        self._events = context.events
        self._reloads = context.reloads
        self._is_draining = False
        #: The services of all features, once they are open.
        self.services: Sequence[Service] = ()
        self._reloads_seen = (context.reloads.reloads, False)
        self._epoch = context.clock() - time.monotonic()
        self._count_step = core.meter.counter(_STEPS)
        core.meter.gauge(_TIME, context.clock)
        core.meter.gauge(_RELOAD, self._has_failed)

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
        reloads = (self._reloads.reloads, self._has_failed())
        if reloads != self._reloads_seen:
            self._reloads_seen = reloads
            self._events.add(Event("reload-failed" if reloads[1] else "reload", int(now)))

    def _has_failed(self) -> bool:
        # A file is read after a reload, and whenever it changes. Until it is right, the last good one is in force.
        is_broken = any("broken" in service.ready().values() for service in self.services)
        return is_broken or self._reloads.reload_failed

    def _watch_clock(self, now: float) -> None:
        before, self._epoch = self._epoch, now - time.monotonic()
        step = self._epoch - before
        # The smallest change of the clock that is an event, in seconds. A slow turn of the event loop takes less.
        if abs(step) >= 5.0:
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


#: The points whose means are shown as those of the last hour.
_LAST_HOUR = 3_600 // models.STEP
#: The breaker's state as a word for readiness.
_BREAKER_WORDS: Final[dict[BreakerState, Literal["closed", "half-open", "open"]]] = {
    BreakerState.CLOSED: "closed",
    BreakerState.HALF_OPEN: "half-open",
    BreakerState.OPEN: "open",
}


class StatusReader:
    """Reads and records the state of a service."""

    def __init__(self, context: Context, core: Core, metrics: Metrics, clients: ClientCounts) -> None:
        self._context = context
        self._events = context.events
        self._metrics = metrics
        self._client_counts = clients
        self.watcher = EventWatcher(context, core)
        self._started = self._recorded_at = context.clock()
        self._down_seconds = 0.0
        self._core = core
        self._history = History()
        self._events.add(Event("start", int(self._started), detail=read_version()))

    def record(self) -> None:
        """Record what has changed, and a point of the history, if it is due. The service calls this every second."""
        self.watcher.watch()
        now = self._context.clock()
        if not self._history.is_due(now):
            return
        self._down_seconds += sum_outages(self._events.read(), self._recorded_at, now)
        self._recorded_at = now
        self._history.record(
            now, {**read_totals(self._metrics.registry.collect()).series(), "down": self._down_seconds}
        )

    async def describe_readiness(self) -> models.Readiness:
        """The body of `/readyz`. It reads no metrics, so a balancer may request it every second."""
        self.watcher.watch()
        readiness = await self._describe_parts()
        summary = self._summarize(readiness, [_describe(point) for point in self._history.points[-RECENT:]])
        worst = next(iter(summary.problems), None)
        sentence = "Working" if worst is None else write_problem(read_english(), worst, summary)
        return readiness.model_copy(update={"problems": summary.problems, "sentence": f"{sentence}."})

    async def _describe_parts(self) -> models.Readiness:
        """The state of each part. The store is read, and an upstream never."""
        draining = self._context.reloads.draining
        stats = await self._core.cache.stats()
        upstreams = [
            models.UpstreamReadiness(
                number=number,
                state=guard.state,
                breaker=_BREAKER_WORDS[guard.breaker.state],
                retry_after=ceil(guard.pause_seconds) or None,
            )
            for number, guard in enumerate(self._core.upstream.guards.values(), 1)
        ]
        states = {upstream.state for upstream in upstreams}
        worst = next((state for state in ("failing", "backing-off", "ok", "unknown") if state in states), "sealed")
        # A failing store makes the cache slower. It is not a reason to send requests to another node.
        detail = {"mode": self._context.settings.mode, "upstream": worst, "store": stats.state}
        shown = {name: value for service in self.watcher.services for name, value in service.ready().items()}
        detail |= {name: value for name, value in shown.items() if isinstance(value, str)}
        if draining:
            detail["service"] = "draining"
        return models.Readiness(
            ready=not draining,
            instance=self._context.settings.instance,
            detail=detail,
            upstreams=upstreams,
            local_records=shown.get("local_records"),
        )

    def _summarize(self, readiness: models.Readiness, history: Sequence[models.HistoryPoint]) -> models.StatusSummary:
        now, events, records = self._context.clock(), self._events.read(), readiness.local_records
        lack, cause = self._core.upstream.budget.lack, self._find_cause()
        lacks = set[str]() if lack is None else {lack.token}
        # Seconds for which a clock that was set is a problem: entries may count as stale, or as fresh for too long.
        facts = Facts(
            upstreams=list(self._name_upstreams(events)),
            mode=self._context.settings.mode,
            is_draining=self._context.reloads.draining,
            refusals={event.cause for event in events if event.kind == "refusal" and event.until is None} | lacks,
            cause=cause.token,
            sign=cause.sign,
            store=readiness.detail["store"],
            store_cause=next((each.cause for each in events if each.kind == "store" and each.until is None), ""),
            was_clock_set=any(event.kind == "clock" and 0 <= now - event.at < 600 for event in events),
            has_failed_reload=self._context.reloads.reload_failed or "broken" in readiness.detail.values(),
            has_broken_records=records is not None and records.state == "broken",
        )
        return summarize(facts, history, self._started, now)

    async def read(self) -> models.Status:
        """The state now. The store is read, and an upstream never."""
        self.watcher.watch()
        readiness, events = await self._describe_parts(), self._events.read()
        totals = read_totals(self._metrics.registry.collect())
        points = self._history.read_now(self._context.clock(), totals.series())
        await asyncio.sleep(0)
        answers = totals.by("doi_proxy_cache_answers_total", "kind")
        number = sum(answers.values())
        hits = totals.series()["hits"]
        unverified = totals.by("doi_proxy_could_not_verify_total", "reason")
        denied = unverified.pop(PrefixDenied.token, 0)
        networks, largest_share = self._client_counts.read()
        history = [_describe(point) for point in points]
        return models.Status(
            summary=self._summarize(readiness, history),
            version=read_version(),
            instance=readiness.instance,
            started=int(self._started),
            uptime=int(self._context.clock() - self._started),
            mode=self._context.settings.mode,
            draining=self._context.reloads.draining,
            requests=totals.by("doi_proxy_http_requests_total", "status"),
            answers=answers,
            hit_share=hits / number if number else None,
            independent_share=_share_without_queries(points),
            unverified=unverified,
            denied=denied,
            upstreams=readiness.upstreams,
            upstream_seconds=_mean(points[-_LAST_HOUR:], "question_seconds", "questions"),
            budget=models.BudgetStatus.model_validate(self._core.upstream.budget, from_attributes=True),
            store=await self._store(),
            local_records=readiness.local_records,
            clients=models.ClientStatus(networks=networks, largest_share=largest_share),
            connections=int(totals.sum("doi_proxy_connections_open")),
            refused=totals.by("doi_proxy_client_refusals_total", "reason"),
            loop_delay=_mean(points[-_LAST_HOUR:], "delay_seconds", "delays"),
            events=[models.EventStatus.model_validate(event, from_attributes=True) for event in reversed(events)],
            history=history,
        )

    def _find_cause(self, *urls: str) -> Cause:
        """Why the last name got no answer from an upstream, or from one of these."""
        if self._context.settings.mode == "sealed":
            return Cause(NotInBundle.token)
        guards = self._core.upstream.guards
        failures = [guards[url].log.last_failure for url in urls or guards]
        now = time.monotonic()
        recent = [(at, cause) for at, cause in filter(None, failures) if now - at < RECENT * models.STEP]
        return max(recent, key=itemgetter(0), default=(now, Cause()))[1]

    def _name_upstreams(self, events: Sequence[Event]) -> Iterator[models.UpstreamName]:
        """The upstreams, with the cause of the event that goes on about each, or of the last failure."""
        defaults, kinds = self._context.settings.upstream_url, {"outage": "failing", "pause": "backing-off"}
        under_way = {
            (kinds.get(event.kind), event.detail): Cause(event.cause, event.sign)
            for event in events
            if event.until is None
        }
        for url, guard in self._core.upstream.guards.items():
            state = guard.state
            failed = guard.log.first_failure if state == "failing" else None
            since = None if failed is None else self._context.clock() - (time.monotonic() - failed)
            cause = under_way.get((state, name_upstream(url)))
            # Between two pauses, and before an outage is sure, no event goes on.
            if cause is None and state in kinds.values():
                cause = self._find_cause(url)
            yield models.UpstreamName(
                name=name_upstream(url),
                state=state,
                down_since=None if since is None else int(since),
                is_route=url not in defaults,
                cause="" if cause is None else cause.token,
                sign="" if cause is None else cause.sign,
            )

    async def _store(self) -> models.StoreStatus:
        stats = await self._core.cache.stats()
        store, scheme = stats.store, self._context.settings.store_url.partition(":")[0]
        return models.StoreStatus(
            kind="memory" if scheme == "memory" else "sqlite" if scheme == "sqlite" else "server",
            healthy=stats.healthy,
            read_only=stats.state == "read-only",
            entries=0 if store is None else store.entries,
            bytes=0 if store is None else store.bytes,
            memory_entries=stats.memory_entries,
            memory_bytes=stats.memory_bytes,
        )


def sum_outages(events: Iterable[Event], begin: float, end: float) -> float:
    """The seconds between two times in which an upstream was down. Two outages at the same time count as one."""
    seconds, reached = 0.0, begin
    for event in sorted(events, key=attrgetter("at")):
        if event.kind == "outage":
            until = min(end, end if event.until is None else event.until)
            seconds += max(0.0, until - max(reached, event.at))
            reached = max(reached, until)
    return seconds


def _describe(point: Point) -> models.HistoryPoint:
    counts = ("requests", "answers", "hits", "stale", "unverified", "questions", "down")
    return models.HistoryPoint(
        start=point.start,
        **{name: int(point.sums.get(name, 0)) for name in counts},
        upstream_seconds=_mean([point], "question_seconds", "questions"),
        loop_delay=_mean([point], "delay_seconds", "delays"),
    )


def _mean(points: Sequence[Point], sums: str, counts: str) -> float | None:
    count = sum(point.sums.get(counts, 0.0) for point in points)
    return sum(point.sums.get(sums, 0.0) for point in points) / count if count else None


def _share_without_queries(points: Iterable[Point]) -> float | None:
    """The share of names that would have been answered without the upstream, 0 to 1. None without names."""
    known = [point.sums for point in points]
    names = sum(sums.get("answers", 0.0) + sums.get("unverified", 0.0) for sums in known)
    lost = sum(sums.get("needed", 0.0) + sums.get("unverified", 0.0) for sums in known)
    return 1.0 - lost / names if names else None
