"""A guard with usual limits."""

from __future__ import annotations

from collections.abc import Callable

from doi_proxy.upstream.budget import Budget
from doi_proxy.upstream.client import HandleClient
from doi_proxy.upstream.guard import Breaker, Guard, Pause, RecordQuery, UpstreamHealth
from doi_proxy.upstream.upstream_log import UpstreamLog


def open_guard(
    api: HandleClient,
    budget: Budget,
    clock: Callable[[], float],
    *,
    breaker: Breaker | None = None,
    record_query: RecordQuery | None = None,
) -> Guard:
    """The guard of one upstream; its pauses are 60 to 3,600 seconds at most."""
    return Guard(
        api,
        UpstreamHealth(
            breaker or Breaker(failures=10, cooldown=15),
            Pause(first=60, most=3600),
            UpstreamLog("upstream 1", clock, shows_names=True),
        ),
        budget,
        clock,
        record_query=record_query,
    )
