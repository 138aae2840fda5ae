"""Reads the state of the running parts for `/metrics`."""

from __future__ import annotations

from doi_proxy.features.feature import Core
from doi_proxy.features.metrics.instruments import FeatureMetrics
from doi_proxy.features.metrics.state import ProcessState, SharedState, StateMetrics, UpstreamGauges
from doi_proxy.features.metrics.workers import Exposition, MetricsText


async def expose(
    core: Core, state: StateMetrics, features: FeatureMetrics, exposition: Exposition, accept: str | None
) -> MetricsText:
    """The gauges of `/metrics`. They read the store and send no query to the upstream."""
    stats = await core.cache.stats()
    store = stats.store
    entries, size = (0, 0) if store is None else (store.entries, store.bytes)
    state.set_shared_state(SharedState(core.upstream.budget.tokens, entries, size, stats.healthy))
    set_process_state(core, state, features)
    return exposition.write(accept)


def set_process_state(core: Core, state: StateMetrics, features: FeatureMetrics) -> None:
    """Set the gauges of this process."""
    state.set_process_state(_read_process(core))
    features.read_gauges()


def _read_process(core: Core) -> ProcessState:
    memory, counters, upstream = core.cache.memory, core.cache.counters, core.upstream
    return ProcessState(
        in_flight=upstream.budget.in_flight,
        waiting=upstream.budget.waiting,
        clients_waiting=upstream.budget.clients_waiting,
        upstreams=tuple(
            UpstreamGauges(
                guard.breaker.state.value, guard.pause_seconds, guard.log.down_seconds, guard.log.seems_portal
            )
            for guard in upstream.guards.values()
        ),
        memory_entries=memory.entries,
        memory_bytes=memory.bytes,
        memory_evictions=memory.evictions,
        lease_fallbacks=0,
        budget_fallbacks=0,
    )
