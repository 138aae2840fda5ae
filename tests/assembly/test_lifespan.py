"""The tick of the services."""

from __future__ import annotations

import pytest

from doi_proxy.assembly import lifecycle
from doi_proxy.system.check import Service

pytestmark = pytest.mark.anyio


class Ended(Exception):
    """The end of the test's time."""


async def test_a_tick_says_by_how_much_the_loop_was_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now, late, observed = 100.0, [0.0, 0.45, 2.0, -0.01], list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now
        if not late:
            raise Ended
        now += seconds + late.pop(0)

    class Observer(Service):
        def tick(self, late: float) -> None:
            nonlocal now
            observed.append(late)
            now += 0.3  # the time that ticks take is not a delay

    monkeypatch.setattr("doi_proxy.assembly.lifecycle.asyncio.sleep", sleep)
    monkeypatch.setattr("doi_proxy.assembly.lifecycle.time.perf_counter", lambda: now)
    with pytest.raises(Ended):
        await lifecycle._tick([Observer()])
    assert observed == pytest.approx([0.0, 0.45, 2.0, 0.0])
