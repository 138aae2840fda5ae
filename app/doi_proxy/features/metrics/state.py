"""The metrics of the state of the process and of its store. See docs/metrics.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from doi_proxy.cache.fallback import TierStats
from doi_proxy.features.feature import Core


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
