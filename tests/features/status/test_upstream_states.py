"""What the workers of a service tell each other about an upstream."""

from __future__ import annotations

from pathlib import Path

import pytest

from doi_names.name import HandleName
from doi_proxy.errors import CouldNotVerify
from doi_proxy.features.status.upstream_states import UpstreamStates
from doi_proxy.sharing.memory import SharedMemory
from doi_proxy.sharing.states import SharedStates
from doi_proxy.upstream.breaker import Breaker, BreakerState
from doi_proxy.upstream.budget import Budget, BudgetLimits
from doi_proxy.upstream.guard import Guard
from doi_proxy.upstream.source import UpstreamQuery
from tests.clock import Clock
from tests.fake_upstream import EVERY_NAME, FakeUpstream
from tests.parts import usual_api
from tests.upstream.guards import open_guard

pytestmark = pytest.mark.anyio

FAILURES = 2
LIMITS = BudgetLimits(rate=100, burst=100, max_concurrency=4, reserved_for_people=0.5, most_of_client=4)


class Worker:
    """The guard of one worker, and what it shares."""

    def __init__(self, upstream: FakeUpstream, memory: SharedMemory, clock: Clock, *, cooldown: float) -> None:
        breaker = Breaker(failures=FAILURES, cooldown=cooldown)
        self.guard: Guard = open_guard(usual_api(upstream.url), Budget(LIMITS, clock), clock, breaker=breaker)
        self.states = UpstreamStates({upstream.url: self.guard}, SharedStates(memory), clock)

    async def fetch(self, name: str) -> bool:
        try:
            await self.guard.fetch(UpstreamQuery(HandleName(name)))
        except CouldNotVerify:
            return False
        return True

    async def fail(self) -> None:
        assert [await self.fetch(f"10.5555/{number}") for number in range(FAILURES)] == [False] * FAILURES


async def test_an_answer_to_one_worker_ends_the_outage_of_all(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, memory = Clock(1_000.0), SharedMemory(tmp_path / "lock")
    async with FakeUpstream() as upstream:
        first, second = (Worker(upstream, memory, clock, cooldown=cooldown) for cooldown in (10, 3_600))
        upstream.put("10.5555/a", url="https://example.org/")
        upstream.fault(EVERY_NAME, "status", status=500)
        for worker in (first, second):
            await worker.fail()
            worker.states.tick()
        assert second.guard.breaker.state is BreakerState.OPEN
        upstream.heal(EVERY_NAME)
        clock.advance(11)
        assert await first.fetch("10.5555/a")
        second.states.tick()  # the first worker has not told yet
        assert not await second.fetch("10.5555/a")
        first.states.tick()
        second.states.tick()
        assert (second.guard.state, second.guard.breaker.state) == ("ok", BreakerState.CLOSED)
        assert await second.fetch("10.5555/a")
        # Each worker says it; the log of a service has the first line alone.
        assert {record.getMessage() for record in caplog.records if "up again" in record.getMessage()} == {
            "upstream 1 is up again after 11 s"
        }
        await first.guard.aclose()
        await second.guard.aclose()


async def test_an_answer_that_is_older_than_a_failure_ends_nothing(tmp_path: Path) -> None:
    clock, memory = Clock(1_000.0), SharedMemory(tmp_path / "lock")
    async with FakeUpstream() as upstream:
        first, second = (Worker(upstream, memory, clock, cooldown=10) for _ in range(2))
        upstream.put("10.5555/a", url="https://example.org/")
        assert await first.fetch("10.5555/a")
        clock.advance(1)
        upstream.fault(EVERY_NAME, "status", status=500)
        await second.fail()
        for worker in (first, second, first):
            worker.states.tick()
        assert second.guard.breaker.state is BreakerState.OPEN
        assert {state for state, _ in first.states.read().values()} == {"failing"}
        await first.guard.aclose()
        await second.guard.aclose()
