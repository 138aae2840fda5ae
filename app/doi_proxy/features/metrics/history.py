"""The last 24 hours as sums of five minutes, in memory.

They have totals of the service alone: nothing about a name or a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from doi_proxy.cache.tiered import TierStats
from doi_proxy.errors import NotCached, PrefixDenied, failure_tokens
from doi_proxy.features.feature import Core

#: Seconds of one point, and the number of points: 24 hours.
STEP: Final = 300
LENGTH: Final = 288
#: Seconds between two records.
RECORD_INTERVAL: Final = 30.0
#: The samples that a series sums, and the labels that a sample must have one of.
_SERIES: Final[dict[str, tuple[str, str, frozenset[str]]]] = {
    "requests": ("doi_proxy_http_requests_total", "", frozenset()),
    "answers": ("doi_proxy_cache_answers_total", "", frozenset()),
    "hits": ("doi_proxy_cache_answers_total", "kind", frozenset({"fresh", "negative", "local", "registry"})),
    "stale": ("doi_proxy_cache_answers_total", "kind", frozenset({"stale"})),
    "needed": ("doi_proxy_cache_answers_total", "kind", frozenset({"asked", "joined", "bypassed"})),
    "questions": ("doi_proxy_upstream_question_duration_seconds_count", "", frozenset()),
    "question_seconds": ("doi_proxy_upstream_question_duration_seconds_sum", "", frozenset()),
    "delays": ("doi_proxy_event_loop_delay_seconds_count", "", frozenset()),
    "delay_seconds": ("doi_proxy_event_loop_delay_seconds_sum", "", frozenset()),
}


@dataclass(slots=True)
class Point:
    """The sums of the series in the STEP seconds from `start` on, in seconds since the epoch."""

    start: int
    sums: dict[str, float]


@dataclass(slots=True)
class History:
    """The points, oldest first, and the totals at the last record."""

    points: list[Point] = field(default_factory=list)
    _totals: Mapping[str, float] = field(default_factory=dict)
    _recorded_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether the last record is RECORD_INTERVAL old, or the clock was set back since."""
        return self._recorded_at is None or not 0.0 <= now - self._recorded_at < RECORD_INTERVAL

    def record(self, now: float, totals: Mapping[str, float]) -> None:
        """Add what was counted since the last record to the points of `now`."""
        new = {name: max(0.0, total - self._totals.get(name, 0.0)) for name, total in totals.items()}
        _add(self.points, now, new)
        self._totals, self._recorded_at = dict(totals), now

    def read_now(self, now: float, totals: Mapping[str, float]) -> Sequence[Point]:
        """The points, with what was counted since the last record."""
        newest = [Point(last.start, dict(last.sums)) for last in self.points[-1:]]
        found = History([*self.points[:-1], *newest], self._totals)
        found.record(now, totals)
        return found.points


def _add(points: list[Point], now: float, new: Mapping[str, float]) -> None:
    start = int(now - now % STEP)
    # After the clock was set back, the newest point goes on.
    if not points or points[-1].start < start:
        points.append(Point(start, {}))
    del points[:-LENGTH]
    sums = points[-1].sums
    for name, amount in new.items():
        sums[name] = sums.get(name, 0.0) + amount


class Totals:
    """The samples at a moment."""

    def __init__(self, samples: dict[str, list[Sample]]) -> None:
        self._samples = samples

    def sum(self, metric: str, label: str = "", values: frozenset[str] = frozenset()) -> float:
        """The sum of a metric, or of its samples whose label has one of the values."""
        samples = self._samples.get(metric, ())
        return sum(sample.value for sample in samples if not label or sample.labels.get(label) in values)

    def by(self, metric: str, label: str) -> dict[str, int]:
        """The sums of a counter by the value of a label, without zeros."""
        sums: dict[str, int] = {}
        for sample in self._samples.get(metric, ()):
            if sample.value:
                sums[sample.labels[label]] = sums.get(sample.labels[label], 0) + int(sample.value)
        return sums

    def series(self) -> dict[str, float]:
        """The total of each series of the history."""
        # Names without an answer although nothing failed: the client allowed no query, or the operator denies the
        # prefix. The alert DoiProxyCouldNotVerify leaves them out too.
        failures = failure_tokens() - {NotCached.token, PrefixDenied.token}
        unverified = self.sum("doi_proxy_could_not_verify_total", "reason", failures)
        return {"unverified": unverified, **{name: self.sum(*which) for name, which in _SERIES.items()}}


def read_totals(families: Iterable[Metric]) -> Totals:
    """The samples of metric families."""
    samples: dict[str, list[Sample]] = {}
    for family in families:
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    return Totals(samples)


class StateMetrics(Collector):
    """Reads the state at each scrape."""

    def __init__(self, registry: CollectorRegistry, core: Core, version: str, instance: str) -> None:
        self._core = core
        self._about = version, instance
        self._store: tuple[TierStats, float] | None = None
        registry.register(self)

    async def read_store(self) -> None:
        """Read what a scrape shows of the store, and the tokens of the budget. Sends no query to the upstream."""
        self._store = await self._core.cache.stats(), self._core.upstream.budget.tokens

    def collect(self) -> Iterator[Metric]:
        """See Collector. The metrics of the store are those of the last call of `read_store`."""
        budget, memory = self._core.upstream.budget, self._core.cache.memory
        info = _gauge("build_info", "1, with the version of this program and the name of this instance.")
        info.add_sample(info.name, dict(zip(("version", "instance"), self._about, strict=True)), 1)
        yield info
        yield _gauge("upstream_in_flight", "Upstream queries under way.", budget.in_flight)
        yield _gauge("upstream_waiting", "Upstream queries that wait for the budget.", budget.waiting)
        about = "Clients with an interactive query that waits for the budget."
        yield _gauge("upstream_clients_waiting", about, budget.clients_waiting)
        yield from self._collect_upstreams()
        yield _gauge("memory_entries", "Entries in the memory tier.", memory.entries)
        yield _gauge("memory_bytes", "Bytes of the entries in the memory tier.", memory.bytes)
        about = "Entries that were evicted from the memory tier for lack of room."
        yield CounterMetricFamily("doi_proxy_memory_evictions", about, memory.evictions)
        if self._store is not None:
            stats, tokens = self._store
            yield _gauge("upstream_budget_tokens", "Upstream queries that the budget allows now.", tokens)
            yield _gauge("store_entries", "Entries in the store.", stats.store.entries if stats.store else 0)
            yield _gauge("store_bytes", "Bytes of the store.", stats.store.bytes if stats.store else 0)
            yield _gauge("store_up", "1 while the store works, 0 while it fails.", stats.healthy)

    def _collect_upstreams(self) -> Iterator[Metric]:
        guards = self._core.upstream.guards.values()
        about = "Circuit breaker of an upstream: 0 closed, 1 half-open, 2 open."
        yield _by_upstream("breaker_state", about, [guard.breaker.state.value for guard in guards])
        about = "Seconds left of the pause that an upstream has requested."
        yield _by_upstream("retry_after_seconds", about, [guard.pause_seconds for guard in guards])
        about = "Seconds since the first failure of an outage; 0 without one."
        yield _by_upstream("down_seconds", about, [guard.log.down_seconds for guard in guards])
        about = "1 while an upstream is down and its answers look like those of a login portal."
        yield _by_upstream("portal", about, [guard.log.seems_portal for guard in guards])


def _gauge(name: str, about: str, value: float | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"doi_proxy_{name}", about, value)


def _by_upstream(name: str, about: str, values: Sequence[float]) -> GaugeMetricFamily:
    """A gauge with a value for each upstream, whose label is its number in the settings."""
    family = GaugeMetricFamily(f"doi_proxy_upstream_{name}", about, labels=["upstream"])
    for number, value in enumerate(values, 1):
        family.add_metric([str(number)], value)
    return family
