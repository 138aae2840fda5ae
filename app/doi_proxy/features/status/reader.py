"""Reads what `/status` shows: the counters and the state of this process, and the last 24 hours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Final

from doi_proxy.errors import NotInBundle, PrefixDenied
from doi_proxy.features.feature import Context, Core
from doi_proxy.features.metrics.feature import Metrics
from doi_proxy.features.metrics.history import STEP, History, Point, Totals, read_totals
from doi_proxy.features.status import models
from doi_proxy.features.status.clients import ClientCounts
from doi_proxy.features.status.prefixes import PrefixCounts, PrefixKind
from doi_proxy.features.status.readiness import describe_readiness
from doi_proxy.features.status.summary import RECENT, Facts, read_english, summarize, write_problem
from doi_proxy.features.status.watching import name_upstream
from doi_proxy.system.background import Service
from doi_proxy.system.events import Event
from doi_proxy.system.incidents import Cause
from doi_proxy.system.version import read_version

#: The points whose means are shown as those of the last hour.
_LAST_HOUR = 3_600 // STEP
#: Seconds for which a clock that was set is a problem: entries may count as stale, or as fresh for too long.
_CLOCK_SECONDS: Final = 600


class StatusReader:
    """Reads and records the state of a service."""

    def __init__(self, context: Context, core: Core, metrics: Metrics, clients: ClientCounts) -> None:
        self._context = context
        self._events = context.events
        self._metrics = metrics
        self._client_counts = clients
        #: The services of all features, once they are open.
        self.services: Sequence[Service] = ()
        self._started = self._recorded_at = context.clock()
        self._down_seconds = 0.0
        self._core = core
        self._history = History()
        self._events.add(Event("start", int(self._started), detail=read_version()))

    def record(self) -> None:
        """Record a point of the history, if it is due."""
        now = self._context.clock()
        if not self._history.is_due(now):
            return
        self._down_seconds += sum_outages(self._events.read(), self._recorded_at, now)
        self._recorded_at = now
        self._history.record(now, {**self._collect().series(), "down": self._down_seconds})

    async def describe_readiness(self) -> models.Readiness:
        """The body of `/readyz`. It reads no metrics, so a balancer may request it every second."""
        readiness = await self._describe_parts()
        history = [_describe(point) for point in self._history.points[-RECENT:]]
        summary = self._summarize(readiness, history)
        worst = next(iter(summary.problems), None)
        sentence = "Working" if worst is None else write_problem(read_english(), worst, summary)
        return readiness.model_copy(update={"problems": summary.problems, "sentence": f"{sentence}."})

    async def _describe_parts(self) -> models.Readiness:
        return await describe_readiness(self._context, self._core, self.services)

    def _summarize(self, readiness: models.Readiness, history: Sequence[models.HistoryPoint]) -> models.StatusSummary:
        now, events, records = self._context.clock(), self._events.read(), readiness.local_records
        lack, cause = self._core.upstream.budget.lack, self._find_cause()
        lacks = set[str]() if lack is None else {lack.token}
        facts = Facts(
            upstreams=list(self._name_upstreams(events)),
            mode=self._context.settings.mode,
            is_draining=self._context.reloads.draining,
            refusals={event.cause for event in events if event.kind == "refusal" and event.until is None} | lacks,
            cause=cause.token,
            sign=cause.sign,
            store=readiness.detail["store"],
            store_cause=next((each.cause for each in events if each.kind == "store" and each.until is None), ""),
            was_clock_set=any(event.kind == "clock" and 0 <= now - event.at < _CLOCK_SECONDS for event in events),
            has_failed_reload=self._context.reloads.reload_failed,
            has_broken_records=records is not None and records.state == "broken",
        )
        return summarize(facts, history, self._started, now)

    async def read(self, prefixes: PrefixCounts | None) -> models.Status:
        """The state now, with these counts of prefixes. The store is read, and an upstream never."""
        readiness = await self._describe_parts()
        totals = self._collect()
        history = self._history.read_now(self._context.clock(), totals.series())
        points = history.points
        await asyncio.sleep(0)
        answers = totals.by("doi_proxy_cache_answers_total", "kind")
        number = sum(answers.values())
        hits = totals.series()["hits"]
        unverified = totals.by("doi_proxy_could_not_verify_total", "reason")
        denied = unverified.pop(PrefixDenied.token, 0)
        status = models.Status(
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
            budget=await self._budget(),
            store=await self._store(),
            local_records=readiness.local_records,
            clients=self._clients(),
            prefixes=None if prefixes is None else _list_prefixes(prefixes),
            connections=int(totals.sum("doi_proxy_connections_open")),
            refused=totals.by("doi_proxy_client_refusals_total", "reason"),
            loop_delay=_mean(points[-_LAST_HOUR:], "delay_seconds", "delays"),
            events=[_show(event) for event in reversed(self._events.read())],
            history=[_describe(point) for point in points],
            minutes=[_describe(point) for point in history.minutes],
        )
        summary = self._summarize(readiness, status.history)
        return status.model_copy(update={"summary": summary})

    def _find_cause(self, *urls: str) -> Cause:
        """Why the last name got no answer from an upstream, or from one of these."""
        if self._context.settings.mode == "sealed":
            return Cause(NotInBundle.token)
        guards = self._core.upstream.guards
        failures = [guards[url].log.last_failure for url in urls or guards]
        now = time.monotonic()
        recent = [(at, cause) for at, cause in filter(None, failures) if now - at < RECENT * STEP]
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

    def _collect(self) -> Totals:
        return read_totals(self._metrics.registry.collect())

    def _clients(self) -> models.ClientStatus:
        shares = self._client_counts.shares()
        return models.ClientStatus(
            networks=shares.clients, half=shares.half, nine_tenths=shares.nine_tenths, largest_share=shares.largest
        )

    async def _budget(self) -> models.BudgetStatus:
        budget = self._core.upstream.budget
        return models.BudgetStatus(
            tokens=budget.tokens,
            rate=budget.rate,
            in_flight=budget.in_flight,
            waiting=budget.waiting,
            clients_waiting=budget.clients_waiting,
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


def _list_prefixes(prefixes: PrefixCounts) -> dict[PrefixKind, list[models.PrefixCount]]:
    top = prefixes.top().items()
    return {kind: [models.PrefixCount(prefix=prefix, names=names) for prefix, names in shown] for kind, shown in top}


def _show(event: Event) -> models.EventStatus:
    return models.EventStatus.model_validate({name: getattr(event, name) for name in models.EventStatus.model_fields})


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
