from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from doi_proxy.features.metrics.event_loop import SAMPLE_INTERVAL, delay_histogram, sample_delay

pytestmark = pytest.mark.anyio


class Ended(Exception):
    """The end of the test's time."""


async def test_a_sample_is_the_time_by_which_the_loop_woke_too_late() -> None:
    now, late = 100.0, [0.0, 0.45, 2.0, -0.01]
    observed: list[float] = []

    async def pause(seconds: float) -> None:
        nonlocal now
        if not late:
            raise Ended
        now += seconds + late.pop(0)

    with pytest.raises(Ended):
        await sample_delay(observed.append, lambda: now, pause)
    assert observed == pytest.approx([0.0, 0.45, 2.0, 0.0])
    assert now == pytest.approx(100.0 + 4 * SAMPLE_INTERVAL + 2.44)


def test_samples_are_counted_in_a_histogram() -> None:
    registry = CollectorRegistry()
    observe = delay_histogram(registry)
    observe(0.07)
    name = "doi_proxy_event_loop_delay_seconds"
    assert registry.get_sample_value(f"{name}_bucket", {"le": "0.05"}) == 0
    assert registry.get_sample_value(f"{name}_bucket", {"le": "0.1"}) == 1
