"""The metrics of the state of the process and of the store. See docs/metrics.md.

They are gauges, and counters that other parts of the program keep. They are set before a scrape, not by requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge


@dataclass(frozen=True, slots=True)
class UpstreamGauges:
    """The state of one upstream. `breaker` is 0 closed, 1 half-open, 2 open. The times are in seconds."""

    breaker: int
    retry_after: float
    down: float
    seems_portal: bool


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of one process at a moment; `upstreams` are in the order of their numbers."""

    in_flight: int
    waiting: int
    clients_waiting: int
    upstreams: tuple[UpstreamGauges, ...]
    memory_entries: int
    memory_bytes: int
    memory_evictions: int
    lease_fallbacks: int
    budget_fallbacks: int


@dataclass(frozen=True, slots=True)
class SharedState:
    """The state that all processes share, at a moment."""

    tokens: float
    store_entries: int
    store_bytes: int
    store_up: bool


class StateMetrics:
    """The metrics of the state of one process, and of the state that all processes share."""

    def __init__(self, registry: CollectorRegistry, version: str) -> None:
        self._upstreams = _UpstreamMetrics(registry)
        self._memory = _MemoryMetrics(registry)
        self._fallbacks = _FallbackMetrics(registry)
        self._shared = _SharedMetrics(registry)
        _gauge(registry, "workers", "Worker processes that run.").set(1)
        about = "1, with the version of this program."
        _gauge(registry, "build_info", about, "version", mode="livemostrecent").labels(version).set(1)

    def set_process_state(self, state: ProcessState) -> None:
        """Set the metrics of this process."""
        self._upstreams.set(state)
        self._memory.set(state)
        self._fallbacks.set(state)

    def set_shared_state(self, state: SharedState) -> None:
        """Set the metrics of the state that all processes share."""
        self._shared.set(state)


def _gauge(
    registry: CollectorRegistry,
    name: str,
    about: str,
    *labels: str,
    mode: Literal["livesum", "livemax", "livemostrecent"] = "livesum",
) -> Gauge:
    """A gauge. `mode` makes one value of those of all workers."""
    return Gauge(f"doi_proxy_{name}", about, labels, registry=registry, multiprocess_mode=mode)


class _UpstreamMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        gauge, worst = partial(_gauge, registry), partial(_gauge, registry, mode="livemax")
        self._in_flight = gauge("upstream_in_flight", "Upstream queries under way.")
        self._waiting = gauge("upstream_waiting", "Upstream queries that wait for the budget.")
        about = "Clients with an interactive query that waits for the budget."
        self._clients_waiting = gauge("upstream_clients_waiting", about)
        about = "Circuit breaker of an upstream: 0 closed, 1 half-open, 2 open."
        self._breaker = worst("upstream_breaker_state", about, "upstream")
        about = "Seconds left of the pause that an upstream has requested."
        self._retry_after = worst("upstream_retry_after_seconds", about, "upstream")
        about = "Seconds since the first failure of an outage; 0 without one."
        self._down = worst("upstream_down_seconds", about, "upstream")
        about = "1 while an upstream is down and its answers look like those of a login portal."
        self._portal = worst("upstream_portal", about, "upstream")

    def set(self, state: ProcessState) -> None:
        self._in_flight.set(state.in_flight)
        self._waiting.set(state.waiting)
        self._clients_waiting.set(state.clients_waiting)
        for number, upstream in enumerate(state.upstreams, 1):
            self._breaker.labels(str(number)).set(upstream.breaker)
            self._retry_after.labels(str(number)).set(upstream.retry_after)
            self._down.labels(str(number)).set(upstream.down)
            self._portal.labels(str(number)).set(upstream.seems_portal)


class _MemoryMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._entries = _gauge(registry, "memory_entries", "Entries in the memory tier.")
        self._bytes = _gauge(registry, "memory_bytes", "Bytes of the entries in the memory tier.")
        about = "Entries that were evicted from the memory tier for lack of room."
        self._evictions = _ExternalCounter(Counter("doi_proxy_memory_evictions", about, registry=registry))

    def set(self, state: ProcessState) -> None:
        self._entries.set(state.memory_entries)
        self._bytes.set(state.memory_bytes)
        self._evictions.set_total(state.memory_evictions)


class _FallbackMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        about = "Decisions that one process made alone because the store failed."
        fallbacks = Counter("doi_proxy_store_fallbacks", about, ["kind"], registry=registry)
        self._leases = _ExternalCounter(fallbacks.labels("lease"))
        self._budgets = _ExternalCounter(fallbacks.labels("budget"))

    def set(self, state: ProcessState) -> None:
        self._leases.set_total(state.lease_fallbacks)
        self._budgets.set_total(state.budget_fallbacks)


class _SharedMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        newest = partial(_gauge, registry, mode="livemostrecent")
        self._tokens = newest("upstream_budget_tokens", "Upstream queries that the budget allows now.")
        self._entries = newest("store_entries", "Entries in the store.")
        self._bytes = newest("store_bytes", "Bytes of the store.")
        self._up = newest("store_up", "1 while the store works, 0 while it fails.")

    def set(self, state: SharedState) -> None:
        self._tokens.set(state.tokens)
        self._entries.set(state.store_entries)
        self._bytes.set(state.store_bytes)
        self._up.set(state.store_up)


class _ExternalCounter:
    """A counter whose total is kept elsewhere in the process."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._last = 0

    def set_total(self, total: int) -> None:
        self._counter.inc(max(0, total - self._last))
        self._last = max(total, self._last)
