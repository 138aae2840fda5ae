"""Reads what `/status` shows: the counters of all workers, the state of this process, and the last 24 hours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app import __version__
from app.assembly.lifecycle import Lifecycle
from app.assembly.resolving import Parts
from app.errors import PrefixDenied
from app.features.library.file import LibraryFile
from app.features.limits.counts import ClientCounts
from app.features.metrics.gauges import read_process
from app.features.metrics.history import STEP, Point, SharedHistory, Totals, read_totals
from app.features.metrics.state import StateMetrics
from app.features.metrics.workers import Exposition
from app.features.status.models import BudgetStatus, ClientStatus, HistoryPoint, Status, StoreStatus
from app.features.status.readiness import describe_readiness

#: The points whose means are shown as those of the last hour.
_LAST_HOUR = 3_600 // STEP


@dataclass(frozen=True, slots=True)
class StatusReader:
    """Reads and records the state of a service."""

    parts: Parts
    lifecycle: Lifecycle
    library_file: LibraryFile
    state: StateMetrics
    exposition: Exposition
    history: SharedHistory
    clients: ClientCounts
    clock: Callable[[], float]

    def record(self) -> None:
        """Record a point of the history, if it is due."""
        now = self.clock()
        if self.history.is_due(now):
            self.history.record(now, self._collect().series())

    async def read(self) -> Status:
        """The state now. The store is read, and an upstream never."""
        readiness = await describe_readiness(self.parts, self.lifecycle, self.library_file)
        self.state.set_process_state(read_process(self.parts))
        totals, points = self._collect(), self.history.points()
        answers = totals.by("doi_proxy_cache_answers_total", "kind")
        number = sum(answers.values())
        hits = totals.series()["hits"]
        unverified = totals.by("doi_proxy_could_not_verify_total", "reason")
        denied = unverified.pop(PrefixDenied.token, 0)
        return Status(
            version=__version__,
            mode=self.parts.settings.mode,
            draining=self.lifecycle.draining,
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

    def _collect(self) -> Totals:
        self.exposition.flush()
        return read_totals(self.exposition.collect())

    def _clients(self) -> ClientStatus:
        shares = self.clients.shares()
        return ClientStatus(
            networks=shares.clients, half=shares.half, nine_tenths=shares.nine_tenths, largest_share=shares.largest
        )

    async def _budget(self, totals: Totals) -> BudgetStatus:
        bucket = self.parts.bucket
        return BudgetStatus(
            tokens=self.parts.upstream.budget.tokens if bucket is None else await bucket.look(),
            rate=self.parts.settings.upstream_rate,
            in_flight=int(totals.sum("doi_proxy_upstream_in_flight")),
            waiting=int(totals.sum("doi_proxy_upstream_waiting")),
            clients_waiting=int(totals.sum("doi_proxy_upstream_clients_waiting")),
        )

    async def _store(self, totals: Totals) -> StoreStatus:
        stats = await self.parts.cache.stats()
        store, scheme = stats.store, self.parts.settings.store_url.partition(":")[0]
        return StoreStatus(
            kind="memory" if scheme == "memory" else "sqlite" if scheme == "sqlite" else "server",
            healthy=stats.healthy,
            entries=0 if store is None else store.entries,
            bytes=0 if store is None else store.bytes,
            memory_entries=int(totals.sum("doi_proxy_memory_entries")),
            memory_bytes=int(totals.sum("doi_proxy_memory_bytes")),
        )


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
