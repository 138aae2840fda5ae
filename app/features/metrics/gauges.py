"""Reads the state of the running parts for `/metrics`."""

from __future__ import annotations

from app.assembly.resolving import Parts
from app.features.follow.parents import read_parents
from app.features.metrics.state import ProcessState, SharedState, StateMetrics, UpstreamGauges
from app.features.metrics.workers import Exposition, MetricsText


async def expose(parts: Parts, state: StateMetrics, exposition: Exposition, accept: str | None) -> MetricsText:
    """The gauges of `/metrics`. They read the store and send no query to the upstream."""
    stats = await parts.cache.stats()
    tokens = parts.upstream.budget.tokens if parts.bucket is None else await parts.bucket.look()
    store = stats.store
    entries, size = (0, 0) if store is None else (store.entries, store.bytes)
    # Of several parents, the one that was followed the longest ago.
    parents = await read_parents(parts.cache) if stats.healthy else ()
    followed_at = min((parent.completed_at for parent in parents), default=0.0)
    state.set_shared_state(SharedState(tokens, entries, size, stats.healthy, followed_at))
    state.set_process_state(read_process(parts))
    return exposition.write(accept)


def read_process(parts: Parts) -> ProcessState:
    """What the gauges of this process show now."""
    memory, counters, local = parts.cache.memory, parts.cache.counters, parts.local_files
    return ProcessState(
        in_flight=parts.upstream.budget.in_flight,
        waiting=parts.upstream.budget.waiting,
        clients_waiting=parts.upstream.budget.clients_waiting,
        upstreams=tuple(
            UpstreamGauges(guard.breaker.state.value, guard.pause_seconds, guard.log.down_seconds)
            for guard in parts.upstream.guards.values()
        ),
        memory_entries=memory.entries,
        memory_bytes=memory.bytes,
        memory_evictions=memory.evictions,
        lease_fallbacks=counters.lease_fallbacks,
        budget_fallbacks=counters.budget_fallbacks,
        local_records=0 if local is None else local.records,
        local_record_problems=0 if local is None else len(local.problems),
    )
