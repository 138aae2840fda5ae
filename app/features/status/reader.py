"""Reads what `/status` shows: the counters of all workers, the state of this process, and the last 24 hours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from app import __version__
from app.errors import PrefixDenied
from app.features.feature import Context, required
from app.features.health.readiness import describe_readiness
from app.features.metrics.gauges import set_process_state
from app.features.metrics.history import STEP, Point, SharedHistory, Totals, read_totals
from app.features.metrics.instruments import FeatureMetrics
from app.features.metrics.state import StateMetrics
from app.features.metrics.workers import Exposition
from app.features.status.models import BudgetStatus, ClientStatus, HistoryPoint, Status, StoreStatus, UpstreamName
from app.features.status.summary import summarize

#: The points whose means are shown as those of the last hour.
_LAST_HOUR = 3_600 // STEP


class StatusReader:
    """Reads and records the state of a service."""

    def __init__(self, context: Context, history: SharedHistory) -> None:
        self._context = context
        self._core = context.core
        self._history = history
        self._exposition = required(context.find(Exposition))
        self._features = required(context.find(FeatureMetrics))
        self._state = required(context.find(StateMetrics))
        self._started = _note_start(context.shared_file("started"), context.clock())

    def record(self) -> None:
        """Record a point of the history, if it is due."""
        now = self._context.clock()
        if self._history.is_due(now):
            self._history.record(now, self._collect().series())

    async def read(self) -> Status:
        """The state now. The store is read, and an upstream never."""
        readiness = await describe_readiness(self._context)
        set_process_state(self._core, self._state, self._features)
        totals, points = self._collect(), self._history.points()
        answers = totals.by("doi_proxy_cache_answers_total", "kind")
        number = sum(answers.values())
        hits = totals.series()["hits"]
        unverified = totals.by("doi_proxy_could_not_verify_total", "reason")
        denied = unverified.pop(PrefixDenied.token, 0)
        status = Status(
            version=__version__,
            started=int(self._started),
            uptime=int(self._context.clock() - self._started),
            mode=self._context.facts.mode,
            draining=self._context.reloads.draining,
            workers=int(totals.sum("doi_proxy_workers")),
            requests=totals.by("doi_proxy_http_requests_total", "status"),
            answers=answers,
            hit_share=hits / number if number else None,
            unverified=unverified,
            denied=denied,
            upstreams=readiness.upstreams,
            upstream_seconds=_mean(points[-_LAST_HOUR:], "question_seconds", "questions"),
            budget=await self._budget(totals),
            store=await self._store(totals),
            local_records=readiness.local_records,
            clients=self._clients(),
            connections=int(totals.sum("doi_proxy_connections_open")),
            refused=totals.by("doi_proxy_client_refusals_total", "reason"),
            loop_delay=_mean(points[-_LAST_HOUR:], "delay_seconds", "delays"),
            history=[_describe(point) for point in points],
        )
        now = self._context.clock()
        return status.model_copy(update={"summary": summarize(status, list(self._name_upstreams(now)), now)})

    def _name_upstreams(self, now: float) -> Iterator[UpstreamName]:
        for url, guard in self._core.upstream.guards.items():
            seconds = guard.log.down_seconds
            yield UpstreamName(
                name=urlsplit(url).hostname or "handle servers",
                state=guard.state,
                down_since=int(now - seconds) if seconds else None,
            )

    def _collect(self) -> Totals:
        self._exposition.flush()
        return read_totals(self._exposition.collect())

    def _clients(self) -> ClientStatus:
        shares = self._context.read_shares()
        return ClientStatus(
            networks=shares.clients, half=shares.half, nine_tenths=shares.nine_tenths, largest_share=shares.largest
        )

    async def _budget(self, totals: Totals) -> BudgetStatus:
        return BudgetStatus(
            tokens=await self._core.read_tokens(),
            rate=self._context.facts.upstream_rate,
            in_flight=int(totals.sum("doi_proxy_upstream_in_flight")),
            waiting=int(totals.sum("doi_proxy_upstream_waiting")),
            clients_waiting=int(totals.sum("doi_proxy_upstream_clients_waiting")),
        )

    async def _store(self, totals: Totals) -> StoreStatus:
        stats = await self._core.cache.stats()
        store, scheme = stats.store, self._context.facts.store_url.partition(":")[0]
        return StoreStatus(
            kind="memory" if scheme == "memory" else "sqlite" if scheme == "sqlite" else "server",
            healthy=stats.healthy,
            read_only=stats.state == "read-only",
            entries=0 if store is None else store.entries,
            bytes=0 if store is None else store.bytes,
            memory_entries=int(totals.sum("doi_proxy_memory_entries")),
            memory_bytes=int(totals.sum("doi_proxy_memory_bytes")),
        )


def _note_start(file: Path | None, now: float) -> float:
    """When the first worker started, in seconds since the epoch."""
    if file is None:
        return now
    with suppress(FileExistsError):
        file.touch(exist_ok=False)
    return file.stat().st_mtime


def _describe(point: Point) -> HistoryPoint:
    counts = ("requests", "answers", "hits", "stale", "unverified", "questions")
    return HistoryPoint(
        start=point.start,
        **{name: int(point.sums.get(name, 0)) for name in counts},
        upstream_seconds=_mean([point], "question_seconds", "questions"),
        loop_delay=_mean([point], "delay_seconds", "delays"),
    )


def _mean(points: Sequence[Point], sums: str, counts: str) -> float | None:
    count = sum(point.sums.get(counts, 0.0) for point in points)
    return sum(point.sums.get(sums, 0.0) for point in points) / count if count else None
