"""A source behind its breaker and its budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from app.doi.name import HandleName
from app.errors import (
    BreakerOpen,
    BudgetSpent,
    CouldNotVerify,
    InvalidAnswer,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from app.handle.answer import ResponseCode
from app.upstream.breaker import Breaker, BreakerState
from app.upstream.budget import Budget
from app.upstream.client import HandleApi
from app.upstream.guarded import NOT_ASKED, OUTCOMES, GuardedAgencies, GuardedSource
from app.upstream.source import Priority, Question
from tests.clock import Clock
from tests.fake_upstream import EVERY_NAME, FakeUpstream

pytestmark = pytest.mark.anyio

COOLDOWN = 10.0
#: Questions a second: so slow that nobody waits for a token, but is refused at once.
RATE = 0.01
PATIENCE = dict.fromkeys(Priority, 5.0)


@dataclass
class Heard:
    outcomes: list[str] = field(default_factory=list)

    def asked(self, outcome: str, seconds: float) -> None:
        assert outcome in OUTCOMES
        assert seconds >= 0
        self.outcomes.append(outcome)


class Parts:
    """A guarded source on the fake upstream, its breaker opening at the second failure."""

    def __init__(
        self, upstream: FakeUpstream, *, burst: float = 100.0, places: int = 4, total_timeout: float = 10.0
    ) -> None:
        self.upstream = upstream
        self.clock = Clock(0.0)
        self.heard = Heard()
        self.breaker = Breaker(failures=2, cooldown=COOLDOWN)
        self.budget = Budget(rate=RATE, burst=burst, max_concurrency=places, reserved_for_people=0.5, clock=self.clock)
        self.api = HandleApi(
            upstream.url, user_agent="doi-proxy/1.0", total_timeout=total_timeout, may_ask_again=self.budget.one_more
        )
        self.source = GuardedSource(self.api, self.budget, self.breaker, self.clock, self.heard, PATIENCE)

    async def ask(self, name: str, priority: Priority = Priority.PERSON) -> ResponseCode:
        return (await self.source.ask(Question(HandleName(name), priority=priority))).code

    async def fail(self, name: str) -> CouldNotVerify:
        with pytest.raises(CouldNotVerify) as failure:
            await self.ask(name)
        return failure.value


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as fake:
        fake.put("10.1234/known", url="https://target.example/")
        fake.put("10.1234/empty", values=[])
        yield fake


@pytest.fixture
async def parts(upstream: FakeUpstream) -> AsyncIterator[Parts]:
    made = Parts(upstream)
    yield made
    await made.source.aclose()


async def test_answers_pass_and_are_told_to_the_observer(parts: Parts) -> None:
    assert await parts.ask("10.1234/known") is ResponseCode.SUCCESS
    assert await parts.ask("10.1234/unknown") is ResponseCode.HANDLE_NOT_FOUND
    assert await parts.ask("10.1234/empty") is ResponseCode.VALUES_NOT_FOUND
    assert parts.heard.outcomes == ["found", "not_found", "no_values"]
    assert parts.breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize(
    ("fault", "options", "error", "outcome"),
    [
        ("reset", {}, UpstreamUnreachable, "unreachable"),
        ("status", {"status": 500}, UpstreamRefused, "refused"),
        ("status", {"status": 403}, UpstreamRefused, "refused"),
        ("code_2", {}, UpstreamRefused, "refused"),
        ("garbage", {}, InvalidAnswer, "invalid_answer"),
        ("wrong_name", {}, InvalidAnswer, "invalid_answer"),
    ],
)
async def test_failures_in_a_row_open_the_breaker_and_then_nothing_is_asked(
    parts: Parts, fault: str, options: dict[str, int], error: type[CouldNotVerify], outcome: str
) -> None:
    parts.upstream.fault(EVERY_NAME, fault, **options)
    for name in ("10.1234/a", "10.1234/b"):
        assert type(await parts.fail(name)) is error
        parts.clock.advance(2)
    assert type(failure := await parts.fail("10.1234/c")) is BreakerOpen
    assert failure.retry_after == COOLDOWN - 2
    assert parts.upstream.asked("10.1234/c") == 0
    assert parts.heard.outcomes == [outcome, outcome, "breaker_open"]


async def test_timeouts_in_a_row_open_the_breaker(upstream: FakeUpstream) -> None:
    parts = Parts(upstream, total_timeout=0.05)
    upstream.fault(EVERY_NAME, "hang")
    failures = [type(await parts.fail(name)) for name in ("10.1234/a", "10.1234/b", "10.1234/c")]
    assert failures == [UpstreamTimeout, UpstreamTimeout, BreakerOpen]
    assert parts.heard.outcomes == ["timeout", "timeout", "breaker_open"]
    await parts.source.aclose()


async def test_unknown_names_never_open_the_breaker(parts: Parts) -> None:
    for number in range(10):
        await parts.ask(f"10.1234/unknown{number}")
    assert parts.breaker.state is BreakerState.CLOSED


async def test_after_the_cooldown_one_probe_closes_the_breaker(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "reset", count=4)
    await parts.fail("10.1234/a")
    await parts.fail("10.1234/b")
    parts.clock.advance(COOLDOWN)
    parts.upstream.hold("10.1234/known")
    probe = asyncio.create_task(parts.ask("10.1234/known"))
    await parts.upstream.arrived("10.1234/known")
    assert parts.breaker.state is BreakerState.HALF_OPEN
    assert type(await parts.fail("10.1234/other")) is BreakerOpen
    parts.upstream.release("10.1234/known")
    assert await probe is ResponseCode.SUCCESS
    assert await parts.ask("10.1234/other") is ResponseCode.HANDLE_NOT_FOUND


async def test_a_question_that_waited_for_its_place_while_the_breaker_opened_is_not_asked(
    upstream: FakeUpstream,
) -> None:
    parts = Parts(upstream, places=1)
    upstream.hold("10.1234/known")
    first = asyncio.create_task(parts.ask("10.1234/known"))
    await upstream.arrived("10.1234/known")
    second = asyncio.create_task(parts.ask("10.1234/waiting"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert parts.budget.waiting == 1
    upstream.fault("10.1234/known", "status", status=500)
    parts.breaker.failed(parts.clock())
    upstream.release("10.1234/known")
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(result) for result in results] == [UpstreamRefused, BreakerOpen]
    assert upstream.asked("10.1234/waiting") == 0
    await parts.source.aclose()


async def test_an_upstream_that_says_when_to_come_back_is_obeyed_and_not_given_up(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "status", status=503, retry_after=30)
    assert (await parts.fail("10.1234/a")).retry_after == 30
    assert parts.breaker.state is BreakerState.CLOSED
    assert type(failure := await parts.fail("10.1234/b")) is BudgetSpent
    assert failure.retry_after == pytest.approx(30 + 1 / RATE)
    assert parts.upstream.asked() == 1
    parts.upstream.heal(EVERY_NAME)
    parts.clock.advance(30 + 1 / RATE)
    assert await parts.ask("10.1234/known") is ResponseCode.SUCCESS
    assert parts.heard.outcomes == ["refused", "budget_spent", "found"]


async def test_a_retry_after_of_nothing_is_a_failure_like_any_other(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "status", status=503, retry_after=0)
    await parts.fail("10.1234/a")
    await parts.fail("10.1234/b")
    assert parts.breaker.state is BreakerState.OPEN


async def test_too_many_requests_without_a_time_is_a_pause_and_a_failure(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "status", status=429)
    await parts.fail("10.1234/a")
    assert type(failure := await parts.fail("10.1234/b")) is BudgetSpent
    assert failure.retry_after == pytest.approx(1 + 1 / RATE)
    parts.clock.advance(1 + 1 / RATE)
    await parts.fail("10.1234/c")
    assert parts.breaker.state is BreakerState.OPEN


async def test_a_spent_budget_moves_no_breaker(upstream: FakeUpstream) -> None:
    parts = Parts(upstream, burst=1)
    await parts.ask("10.1234/known")
    for _ in range(3):
        assert type(await parts.fail("10.1234/known")) is BudgetSpent
    assert parts.breaker.state is BreakerState.CLOSED
    assert upstream.asked() == 1
    await parts.source.aclose()


async def test_retries_are_paid_from_the_budget(upstream: FakeUpstream) -> None:
    parts = Parts(upstream, burst=1)
    upstream.fault(EVERY_NAME, "reset")
    assert type(await parts.fail("10.1234/a")) is UpstreamUnreachable
    assert upstream.asked() == 1
    await parts.source.aclose()


async def test_a_caller_that_goes_away_frees_its_place_and_moves_no_breaker(parts: Parts) -> None:
    parts.upstream.hold("10.1234/known")
    question = asyncio.create_task(parts.ask("10.1234/known"))
    await parts.upstream.arrived("10.1234/known")
    question.cancel()
    with pytest.raises(asyncio.CancelledError):
        await question
    assert parts.budget.in_flight == 0
    assert parts.heard.outcomes == ["cancelled"]
    assert parts.breaker.state is BreakerState.CLOSED


async def test_a_storm_keeps_to_the_places(upstream: FakeUpstream) -> None:
    parts = Parts(upstream, burst=1000, places=3)
    upstream.fault(EVERY_NAME, "delay", seconds=0)
    await asyncio.gather(*(parts.ask(f"10.1234/{number}") for number in range(100)))
    assert upstream.max_in_flight == 3
    await parts.source.aclose()


async def test_registration_agencies_go_through_the_same_guard(parts: Parts) -> None:
    agencies = GuardedAgencies(parts.api, parts.source.guard)
    parts.upstream.agency("10.5240", "EIDR")
    assert await agencies.registration_agencies(["10.5240"]) == [{"DOI": "10.5240", "RA": "EIDR"}]
    parts.upstream.fault(EVERY_NAME, "garbage")
    for _ in range(2):
        with pytest.raises(InvalidAnswer):
            await agencies.registration_agencies(["10.5240"])
    with pytest.raises(BreakerOpen):
        await agencies.registration_agencies(["10.5240"])
    assert parts.heard.outcomes == ["agencies", "invalid_answer", "invalid_answer", "breaker_open"]


def test_what_was_not_asked_is_among_the_outcomes() -> None:
    assert NOT_ASKED < OUTCOMES
