"""The delay of the event loop: how long one task made all other requests of the process wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import CollectorRegistry, Histogram

#: Seconds between two samples.
SAMPLE_INTERVAL: Final = 0.1
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


def delay_histogram(registry: CollectorRegistry) -> Callable[[float], None]:
    """Create the histogram. Returns the function that records a sample, in seconds."""
    return Histogram(
        "doi_proxy_event_loop_delay_seconds",
        "How much later than planned the event loop woke a task, sampled ten times a second.",
        buckets=_BUCKETS,
        registry=registry,
    ).observe


async def sample_delay(
    observe: Callable[[float], None], timer: Callable[[], float], pause: Callable[[float], Awaitable[None]]
) -> None:
    """Record how late a pause of SAMPLE_INTERVAL ends, until the task is cancelled."""
    while True:
        due = timer() + SAMPLE_INTERVAL
        await pause(SAMPLE_INTERVAL)
        observe(max(0.0, timer() - due))
