"""The state of the parts of a service, in a fixed vocabulary without paths, hosts or messages of libraries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final, Literal

from doi_proxy.features.feature import Context, Core
from doi_proxy.features.status.models import Readiness, UpstreamReadiness
from doi_proxy.system.background import Service
from doi_proxy.upstream.breaker import BreakerState
from doi_proxy.upstream.guard import Guard

#: The breaker's state as a word for readiness.
_BREAKER_WORDS: Final[dict[BreakerState, Literal["closed", "half-open", "open"]]] = {
    BreakerState.CLOSED: "closed",
    BreakerState.HALF_OPEN: "half-open",
    BreakerState.OPEN: "open",
}


async def describe_readiness(context: Context, core: Core, services: Iterable[Service]) -> Readiness:
    """The body of `/readyz`. It queries the store, and never an upstream."""
    draining = context.reloads.draining
    stats = await core.cache.stats()
    upstreams = [_upstream_readiness(number, guard) for number, guard in enumerate(core.upstream.guards.values(), 1)]
    # A failing store makes the cache slower. It is not a reason to send requests to another node.
    detail = {"mode": context.settings.mode, "upstream": _worst_state(upstreams), "store": stats.state}
    shown = {name: value for service in services for name, value in service.ready().items()}
    detail |= {name: value for name, value in shown.items() if isinstance(value, str)}
    if draining:
        detail["service"] = "draining"
    local = shown.get("local_records")
    return Readiness(
        ready=not draining,
        instance=context.settings.instance,
        detail=detail,
        upstreams=upstreams,
        local_records=local,
    )


def _upstream_readiness(number: int, guard: Guard) -> UpstreamReadiness:
    return UpstreamReadiness(
        number=number,
        state=guard.state,
        breaker=_BREAKER_WORDS[guard.breaker.state],
        retry_after=ceil(guard.pause_seconds) or None,
    )


def _worst_state(upstreams: Sequence[UpstreamReadiness]) -> str:
    states = {upstream.state for upstream in upstreams}
    return next((state for state in ("failing", "backing-off", "ok", "unknown") if state in states), "sealed")
