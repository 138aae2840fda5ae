"""Reads what `/status` shows: the counters of all workers, the state of this process, and the last 24 hours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import urlsplit

from msgspec.structs import asdict

from doi_proxy.errors import PrefixDenied
from doi_proxy.features.feature import Context, Core
from doi_proxy.features.metrics.feature import Metrics
from doi_proxy.features.metrics.gauges import set_process_state
from doi_proxy.features.metrics.history import STEP, Point, SharedHistory, Totals, read_totals
from doi_proxy.features.status import models
from doi_proxy.features.status.clients import ClientCounts
from doi_proxy.features.status.prefixes import PrefixCounts, PrefixKind
from doi_proxy.features.status.readiness import describe_readiness
from doi_proxy.features.status.summary import read_english, summarize, write_sentence
from doi_proxy.features.status.upstream_states import UpstreamStates
from doi_proxy.sharing.events import Event
from doi_proxy.sharing.memory import SharedMemory
from doi_proxy.system.background import Service
from doi_proxy.system.incidents import Incident
from doi_proxy.system.version import read_version

#: The points whose means are shown as those of the last hour.
_LAST_HOUR = 3_600 // STEP


class StatusReader:
    """Reads and records the state of a service."""

    def __init__(
        self,
        context: Context,
        core: Core,
        metrics: Metrics,
        history: SharedHistory,
        upstreams: UpstreamStates,
        clients: ClientCounts,
    ) -> None:
        self._context = context
        self._events = context.events
        self._metrics = metrics
        self._client_counts = clients
        #: The services of all features, once they are open.
        self.services: Sequence[Service] = ()
        #: The incidents of upstreams and the budget that are events without an end.
        self._under_way: set[Incident] = set()
        self._store_down: int | None = None
        self._down_seconds, self._recorded_at = 0.0, context.clock()
        self._is_draining = False
        self._core = core
        self._history = history
        self._upstreams = upstreams
        now = context.clock()
        self._started, is_first = _note_start(context.reloads.memories["start"], now)
        if is_first:
            self._events.add(Event("start", int(now), detail=read_version()))

    def record(self) -> None:
        """Record a point of the history, if it is due."""
        if self._history.is_due(self._context.clock()):
            self._record()

    def finish(self) -> None:
        """Record what happened since the last record, because this process ends."""
        self.watch()
        if self._history.is_recorder:
            self._record()

    def _record(self) -> None:
        now = self._context.clock()
        self._down_seconds += sum_outages(self._events.read(), self._recorded_at, now)
        self._recorded_at = now
        self._history.record(now, {**self._collect().series(), "down": self._down_seconds})

    def watch(self) -> None:
        """Record incidents and drains that have begun or ended."""
        now = self._context.clock()
        self._watch_upstreams(now - time.monotonic())
        self._watch_store(now)
        if self._context.reloads.draining and not self._is_draining:
            self._is_draining = True
            self._events.add(Event("drain", int(now)))

    def _watch_upstreams(self, epoch: float) -> None:
        """Record the incidents of upstreams and the budget. `epoch` is what their times need to count since 1970."""
        upstream, under_way = self._core.upstream, set[Incident]()
        if not upstream.budget.waiting:
            upstream.budget.log.notice_quiet()
        parts = [(_host(url), guard.log.outages) for url, guard in upstream.guards.items()]
        parts += [(_host(url), guard.log.pauses) for url, guard in upstream.guards.items()]
        for host, incidents in (*parts, ("", upstream.budget.log.refusals)):
            for incident in incidents.read():
                if incident.ended is None:
                    under_way.add(incident)
                if incident not in self._under_way:
                    until = None if incident.ended is None else int(epoch + incident.ended)
                    at = int(epoch + incident.began)
                    self._events.add(Event(incident.kind, at, until, host or incident.cause, cause=incident.cause))
        self._under_way = under_way

    def _watch_store(self, now: float) -> None:
        cache, began = self._core.cache, self._store_down
        since = now if cache.down_since is None and cache.waits_for_store else cache.down_since
        if since is not None and began is None:
            self._store_down = int(since)
            self._events.add(Event("store", self._store_down))
        elif since is None and began is not None:
            self._store_down = None
            self._events.add(Event("store", began, int(now)))

    async def describe_readiness(self) -> models.Readiness:
        """The body of `/readyz`."""
        return await describe_readiness(self._context, self._core, self._upstreams, self.services)

    async def read(self, prefixes: PrefixCounts | None) -> models.Status:
        """The state now, with these counts of prefixes. The store is read, and an upstream never."""
        readiness = await self.describe_readiness()
        set_process_state(self._core, self._metrics.state, self._metrics.features)
        totals = self._collect()
        points = self._history.points_now(self._context.clock(), totals.series())
        await asyncio.sleep(0)
        answers = totals.by("doi_proxy_cache_answers_total", "kind")
        number = sum(answers.values())
        hits = totals.series()["hits"]
        unverified = totals.by("doi_proxy_could_not_verify_total", "reason")
        denied = unverified.pop(PrefixDenied.token, 0)
        status = models.Status(
            version=read_version(),
            started=int(self._started),
            uptime=int(self._context.clock() - self._started),
            mode=self._context.settings.mode,
            draining=self._context.reloads.draining,
            workers=int(totals.sum("doi_proxy_workers")),
            requests=totals.by("doi_proxy_http_requests_total", "status"),
            answers=answers,
            hit_share=hits / number if number else None,
            independent_share=_share_without_queries(points),
            unverified=unverified,
            denied=denied,
            upstreams=readiness.upstreams,
            upstream_seconds=_mean(points[-_LAST_HOUR:], "question_seconds", "questions"),
            budget=await self._budget(totals),
            store=await self._store(totals),
            local_records=readiness.local_records,
            clients=self._clients(),
            prefixes=None if prefixes is None else _list_prefixes(prefixes),
            connections=int(totals.sum("doi_proxy_connections_open")),
            refused=totals.by("doi_proxy_client_refusals_total", "reason"),
            loop_delay=_mean(points[-_LAST_HOUR:], "delay_seconds", "delays"),
            events=[models.EventStatus(**asdict(event)) for event in reversed(self._events.read())],
            history=[_describe(point) for point in points],
        )
        now = self._context.clock()
        summary = summarize(status, list(self._name_upstreams()), now)
        summary = summary.model_copy(update={"sentence": write_sentence(read_english(), summary)})
        return status.model_copy(update={"summary": summary})

    def _name_upstreams(self) -> Iterator[models.UpstreamName]:
        defaults = self._context.settings.upstream_url
        for url, (state, since) in self._upstreams.read().items():
            down_since = None if since is None else int(since)
            yield models.UpstreamName(name=_host(url), state=state, down_since=down_since, is_route=url not in defaults)

    def _collect(self) -> Totals:
        self._metrics.exposition.flush()
        return read_totals(self._metrics.exposition.collect())

    def _clients(self) -> models.ClientStatus:
        shares = self._client_counts.shares()
        return models.ClientStatus(
            networks=shares.clients, half=shares.half, nine_tenths=shares.nine_tenths, largest_share=shares.largest
        )

    async def _budget(self, totals: Totals) -> models.BudgetStatus:
        return models.BudgetStatus(
            tokens=await self._core.read_tokens(),
            rate=self._core.upstream.budget.rate,
            in_flight=int(totals.sum("doi_proxy_upstream_in_flight")),
            waiting=int(totals.sum("doi_proxy_upstream_waiting")),
            clients_waiting=int(totals.sum("doi_proxy_upstream_clients_waiting")),
        )

    async def _store(self, totals: Totals) -> models.StoreStatus:
        stats = await self._core.cache.stats()
        store, scheme = stats.store, self._context.settings.store_url.partition(":")[0]
        return models.StoreStatus(
            kind="memory" if scheme == "memory" else "sqlite" if scheme == "sqlite" else "server",
            healthy=stats.healthy,
            read_only=stats.state == "read-only",
            entries=0 if store is None else store.entries,
            bytes=0 if store is None else store.bytes,
            memory_entries=int(totals.sum("doi_proxy_memory_entries")),
            memory_bytes=int(totals.sum("doi_proxy_memory_bytes")),
        )


def sum_outages(events: Iterable[Event], begin: float, end: float) -> float:
    """The seconds between two times in which an upstream was down. Two outages at the same time count as one."""
    seconds, reached = 0.0, begin
    for event in events:
        if event.kind == "outage":
            until = min(end, end if event.until is None else event.until)
            seconds += max(0.0, until - max(reached, event.at))
            reached = max(reached, until)
    return seconds


def _list_prefixes(prefixes: PrefixCounts) -> dict[PrefixKind, list[models.PrefixCount]]:
    top = prefixes.top().items()
    return {kind: [models.PrefixCount(prefix=prefix, names=names) for prefix, names in shown] for kind, shown in top}


def _host(url: str) -> str:
    return urlsplit(url).hostname or "handle servers"


def _note_start(memory: SharedMemory, now: float) -> tuple[float, bool]:
    """When the first worker started, in seconds since the epoch, and whether that is this one."""
    is_first = False

    def note(content: bytes) -> bytes:
        nonlocal is_first
        is_first = not content
        return content or repr(now).encode()

    memory.change(note, waits=True)
    return float(memory.read() or now), is_first


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
