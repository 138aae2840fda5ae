"""A source behind its breaker and its budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from doi_names.name import HandleName
from doi_proxy.errors import (
    BreakerOpen,
    BudgetSpent,
    CouldNotVerify,
    InvalidAnswer,
    UpstreamPaused,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from doi_proxy.upstream.budget import Budget, BudgetLimits
from doi_proxy.upstream.guard import UNSENT_OUTCOMES, Breaker, BreakerState, GuardedAgencies, list_outcomes
from doi_proxy.upstream.source import CONTROL_NAME, Priority, UpstreamQuery
from doi_proxy.upstream.upstream_log import OUTAGE_SECONDS
from handle_protocol.referral import Answer, ResponseCode
from tests.clock import Clock
from tests.fake_upstream import EVERY_NAME, FakeUpstream
from tests.parts import usual_api
from tests.upstream.guards import open_guard

pytestmark = pytest.mark.anyio

COOLDOWN = 10.0
#: Queries a second: so slow that no query waits for a token; it is refused immediately.
RATE = 0.01


@dataclass
class Heard:
    outcomes: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def record_query(self, outcome: str, seconds: float) -> None:
        assert outcome in list_outcomes()
        self.outcomes.append(outcome)
        self.seconds.append(seconds)


class Parts:
    """A guarded source on the fake upstream, its breaker opening at the second failure."""

    def __init__(self, upstream: FakeUpstream, *, burst: float = 100.0, places: int = 4) -> None:
        self.upstream = upstream
        self.clock = Clock(0.0)
        self.heard = Heard()
        self.breaker = Breaker(failures=2, cooldown=COOLDOWN)
        self.budget = Budget(
            BudgetLimits(rate=RATE, burst=burst, max_concurrency=places),
            self.clock,
        )
        self.api = usual_api(upstream.url, may_ask_again=self.budget.admit_retry)
        self.guard = open_guard(
            self.api,
            self.budget,
            self.clock,
            breaker=self.breaker,
            record_query=self.heard.record_query,
        )
        self.source = self.guard

    async def ask(self, name: str, priority: Priority = Priority.PERSON) -> ResponseCode:
        return (await self.source.fetch(UpstreamQuery(HandleName(name), priority=priority))).code

    def is_open(self) -> bool:
        return self.breaker.state is BreakerState.OPEN

    def state(self) -> str:
        return self.guard.state

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
async def parts(request: pytest.FixtureRequest, upstream: FakeUpstream) -> AsyncIterator[Parts]:
    """The options are those of the test's parameter."""
    made = Parts(upstream, **getattr(request, "param", {}))
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
        ("reset", {}, UpstreamUnreachable, "upstream-unreachable"),
        ("status", {"status": 500}, UpstreamRefused, "upstream-refused"),
        ("status", {"status": 503}, UpstreamRefused, "upstream-refused"),
    ],
)
async def test_failures_of_the_upstream_over_several_names_open_the_breaker_and_then_nothing_is_asked(
    parts: Parts, fault: str, options: dict[str, int], error: type[CouldNotVerify], outcome: str
) -> None:
    parts.upstream.fault(EVERY_NAME, fault, **options)
    for name in ("10.1234/a", "10.1234/b"):
        assert type(await parts.fail(name)) is error
        parts.clock.advance(2)
    assert type(failure := await parts.fail("10.1234/c")) is BreakerOpen
    assert failure.retry_after == COOLDOWN - 2
    assert parts.upstream.queries("10.1234/c") == 0
    assert parts.heard.outcomes == [outcome, outcome, "breaker-open"]


async def test_a_query_in_the_last_second_of_the_cooldown_takes_no_token(parts: Parts) -> None:
    parts.breaker.open(parts.clock())
    parts.clock.advance(COOLDOWN - 0.5)
    tokens = parts.budget.tokens
    assert (await parts.fail("10.1234/known")).retry_after == 0.5
    assert parts.budget.tokens == tokens
    assert parts.upstream.queries() == 0


#: What an upstream that works answers about names that it refuses, or whose records are damaged.
NAME_FAULTS: list[tuple[str, dict[str, int], type[CouldNotVerify], str]] = [
    ("status", {"status": 403}, UpstreamRefused, "upstream-refused"),
    ("code_2", {}, UpstreamRefused, "upstream-refused"),
    ("garbage", {}, InvalidAnswer, "upstream-bad-answer"),
]


@pytest.mark.parametrize(("fault", "options", "error", "outcome"), NAME_FAULTS)
async def test_names_without_a_usable_answer_do_not_open_the_breaker_of_an_upstream_that_works(
    parts: Parts, fault: str, options: dict[str, int], error: type[CouldNotVerify], outcome: str
) -> None:
    names = [f"10.1234/{number}" for number in range(48)]
    for name in names:
        parts.upstream.fault(name, fault, **options)
        assert type(await parts.fail(name)) is error
    assert await parts.ask("10.1234/known") is ResponseCode.SUCCESS
    # Each two names without an answer in between cost one control question, which clears them.
    assert parts.upstream.queries(CONTROL_NAME.text) == len(names) / 2
    assert parts.state() == "ok"


@pytest.mark.parametrize(("fault", "options", "error", "outcome"), NAME_FAULTS)
async def test_an_upstream_without_a_usable_answer_about_any_name_opens_the_breaker(
    parts: Parts, fault: str, options: dict[str, int], error: type[CouldNotVerify], outcome: str
) -> None:
    parts.upstream.fault(EVERY_NAME, fault, **options)
    for name in ("10.1234/a", "10.1234/a", "10.1234/b"):
        assert type(await parts.fail(name)) is error
    assert type(await parts.fail("10.1234/c")) is BreakerOpen
    assert parts.heard.outcomes == [outcome] * 4 + ["breaker-open"]
    assert parts.upstream.queries(CONTROL_NAME.text) == 1


async def test_a_probe_without_a_usable_answer_is_decided_by_the_control_question(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "html")
    await parts.fail("10.1234/a")
    await parts.fail("10.1234/b")
    parts.clock.advance(COOLDOWN)
    await parts.fail("10.1234/c")
    assert parts.is_open()
    parts.upstream.heal(EVERY_NAME)
    parts.upstream.fault("10.1234/c", "html")
    parts.clock.advance(COOLDOWN)
    await parts.fail("10.1234/c")
    assert not parts.is_open()


@pytest.mark.parametrize("parts", [{"burst": 2}], indirect=True)
async def test_without_a_token_there_is_no_control_question(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "html")
    await parts.fail("10.1234/a")
    await parts.fail("10.1234/b")
    assert parts.upstream.queries() == 2
    assert parts.breaker.state is BreakerState.CLOSED


async def test_timeouts_in_a_row_open_the_breaker(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "hang")
    failures = [type(await parts.fail(name)) for name in ("10.1234/a", "10.1234/b", "10.1234/c")]
    assert failures == [UpstreamTimeout, UpstreamTimeout, BreakerOpen]
    # The third is the control query.
    assert parts.heard.outcomes == ["upstream-timeout", "upstream-timeout", "upstream-timeout", "breaker-open"]


@pytest.mark.parametrize("parts", [{"places": 12}], indirect=True)
async def test_queries_that_fail_at_once_send_one_control_query(parts: Parts) -> None:
    take = parts.budget.admit_retry

    async def take_from_a_store() -> bool:
        await asyncio.sleep(0)
        return await take()

    parts.budget.admit_retry = take_from_a_store  # type: ignore[method-assign]
    parts.upstream.fault(EVERY_NAME, "hang")
    names = [f"10.1234/{number}" for number in range(8)]
    failures = await asyncio.gather(*map(parts.ask, names), return_exceptions=True)
    assert {type(failure) for failure in failures} == {UpstreamTimeout}
    assert parts.upstream.queries(CONTROL_NAME.text) == 1


async def test_names_that_hang_do_not_open_the_breaker_of_an_upstream_that_works(parts: Parts) -> None:
    names = [f"10.1234/{number}" for number in range(6)]
    for name in names:
        parts.upstream.fault(name, "hang")
        assert type(await parts.fail(name)) is UpstreamTimeout
    assert await parts.ask("10.1234/known") is ResponseCode.SUCCESS
    # Each two names without an answer in between cost one control question, which clears them.
    assert parts.upstream.queries(CONTROL_NAME.text) == len(names) / 2
    assert parts.state() == "ok"


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


@pytest.mark.parametrize("parts", [{"places": 1}], indirect=True)
async def test_a_question_that_waited_for_its_place_while_the_breaker_opened_is_not_asked(parts: Parts) -> None:
    parts.upstream.hold("10.1234/known")
    first = asyncio.create_task(parts.ask("10.1234/known"))
    await parts.upstream.arrived("10.1234/known")
    second = asyncio.create_task(parts.ask("10.1234/waiting"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert parts.budget.waiting == 1
    parts.upstream.fault("10.1234/known", "status", status=500)
    parts.breaker.record_failure("10.1234/other", parts.clock())
    parts.upstream.release("10.1234/known")
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(result) for result in results] == [UpstreamRefused, BreakerOpen]
    assert parts.upstream.queries("10.1234/waiting") == 0


async def test_a_pause_is_longer_only_if_the_next_question_is_refused_too(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "status", status=503, retry_after=3600)
    pauses = []
    for _ in range(3):
        pauses.append((await parts.fail("10.1234/a")).retry_after)
        parts.clock.advance(pauses[-1] or 0)
        # The first question drops the tokens at hand; the next is asked when there is one.
        assert type(await parts.fail("10.1234/a")) is BudgetSpent
        parts.clock.advance(1 / RATE)
    assert pauses == [60, 120, 240]
    parts.upstream.heal(EVERY_NAME)
    assert await parts.ask("10.1234/known") is ResponseCode.SUCCESS
    parts.clock.advance(1 / RATE)
    parts.upstream.fault(EVERY_NAME, "status", status=503, retry_after=3600)
    assert (await parts.fail("10.1234/a")).retry_after == 60


async def test_after_a_pause_the_budget_starts_empty(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "status", status=503, retry_after=30, count=1)
    await parts.fail("10.1234/a")
    parts.clock.advance(30)
    assert type(failure := await parts.fail("10.1234/known")) is BudgetSpent
    assert failure.retry_after == pytest.approx(1 / RATE)
    parts.clock.advance(1 / RATE)
    assert await parts.ask("10.1234/known") is ResponseCode.SUCCESS
    assert parts.state() == "ok"


async def test_a_retry_after_of_another_status_pauses_nothing(parts: Parts) -> None:
    parts.upstream.fault("10.1234/a", "status", status=403, retry_after=3600)
    parts.upstream.fault("10.1234/b", "status", status=500, retry_after=3600)
    await parts.fail("10.1234/a")
    await parts.fail("10.1234/b")
    assert await parts.ask("10.1234/known") is ResponseCode.SUCCESS


async def test_a_retry_after_of_nothing_is_a_failure_like_any_other(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "status", status=503, retry_after=0)
    await parts.fail("10.1234/a")
    await parts.fail("10.1234/b")
    assert parts.breaker.state is BreakerState.OPEN


async def test_too_many_requests_without_a_time_is_a_pause_and_a_failure(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "status", status=429)
    await parts.fail("10.1234/a")
    assert type(failure := await parts.fail("10.1234/b")) is UpstreamPaused
    assert failure.retry_after == 1
    parts.clock.advance(1)
    assert type(await parts.fail("10.1234/c")) is BudgetSpent
    parts.clock.advance(1 / RATE)
    await parts.fail("10.1234/c")
    assert parts.breaker.state is BreakerState.OPEN


@pytest.mark.parametrize("parts", [{"burst": 1}], indirect=True)
async def test_a_spent_budget_moves_no_breaker(parts: Parts) -> None:
    await parts.ask("10.1234/known")
    for _ in range(3):
        assert type(await parts.fail("10.1234/known")) is BudgetSpent
    assert parts.breaker.state is BreakerState.CLOSED
    assert parts.upstream.queries() == 1


async def test_a_look_up_on_the_way_without_a_token_moves_no_breaker(parts: Parts) -> None:
    async def spend() -> Answer:
        raise BudgetSpent

    for name in ("10.1234/a", "10.1234/b", "10.1234/c"):
        with pytest.raises(BudgetSpent):
            await parts.guard.run(name, Priority.PERSON, spend)
    assert (parts.breaker.state, parts.state()) == (BreakerState.CLOSED, "unknown")


async def test_a_caller_that_goes_away_frees_its_place_and_moves_no_breaker(parts: Parts) -> None:
    parts.clock.advance(5)
    parts.upstream.hold("10.1234/known")
    question = asyncio.create_task(parts.ask("10.1234/known"))
    await parts.upstream.arrived("10.1234/known")
    parts.clock.advance(2)
    question.cancel()
    with pytest.raises(asyncio.CancelledError):
        await question
    assert parts.budget.in_flight == 0
    assert (parts.heard.outcomes, parts.heard.seconds) == (["cancelled"], [2])
    assert parts.breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize("parts", [{"burst": 1000, "places": 3}], indirect=True)
async def test_a_storm_keeps_to_the_places(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "delay", seconds=0)
    await asyncio.gather(*(parts.ask(f"10.1234/{number}") for number in range(100)))
    assert parts.upstream.max_in_flight == 3


async def test_registration_agencies_go_through_the_same_guard(parts: Parts) -> None:
    agencies = GuardedAgencies(parts.api, parts.guard)
    parts.upstream.agency("10.5240", "EIDR")
    assert await agencies.registration_agencies(["10.5240"]) == [{"DOI": "10.5240", "RA": "EIDR"}]
    parts.upstream.fault(EVERY_NAME, "reset")
    for prefix in ("10.5240", "10.1234"):
        with pytest.raises(UpstreamUnreachable):
            await agencies.registration_agencies([prefix])
    with pytest.raises(BreakerOpen):
        await agencies.registration_agencies(["10.5240"])
    assert parts.heard.outcomes == ["agencies", "upstream-unreachable", "upstream-unreachable", "breaker-open"]


async def test_an_upstream_that_fails_for_one_name_for_long_is_failing_and_the_breaker_stays_close(
    parts: Parts,
) -> None:
    await parts.ask("10.1234/known")
    parts.upstream.fault(EVERY_NAME, "reset")
    await parts.fail("10.1234/a")
    assert parts.state() == "ok"
    parts.clock.advance(OUTAGE_SECONDS)
    await parts.fail("10.1234/a")
    assert (parts.breaker.state, parts.state()) == (BreakerState.CLOSED, "failing")


async def test_an_upstream_that_failed_and_never_answered_is_failing(parts: Parts) -> None:
    assert parts.state() == "unknown"
    parts.upstream.fault(EVERY_NAME, "reset")
    await parts.fail("10.1234/a")
    assert (parts.breaker.state, parts.state()) == (BreakerState.CLOSED, "failing")


async def test_an_upstream_is_failing_while_the_breaker_is_open_even_if_no_outage_was_logged(parts: Parts) -> None:
    await parts.ask("10.1234/known")
    parts.breaker.open(parts.clock())
    assert (parts.guard.log.is_down, parts.state()) == (False, "failing")


async def test_a_pause_and_a_spent_budget_are_two_lines_each(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "doi_proxy.upstream")
    parts.upstream.fault(EVERY_NAME, "status", status=429, retry_after=20, count=1)
    for _ in range(10):
        await parts.fail("10.1234/a")
    parts.clock.advance(20)
    for _ in range(10):
        assert type(await parts.fail("10.1234/a")) is BudgetSpent
    parts.clock.advance(1 / RATE)
    await parts.ask("10.1234/known")
    assert [line.partition(":")[0] for line in caplog.messages] == [
        "upstream 1 gets no queries for 20 s",
        "queries about new names are refused",
        "queries about new names are sent again after 100 s",
        "upstream 1 gets queries again after 120 s",
    ]


async def test_pauses_that_follow_each_other_are_one_incident(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "doi_proxy.upstream")
    parts.upstream.fault(EVERY_NAME, "status", status=429, retry_after=20, count=3)
    for _ in range(3):
        await parts.fail("10.1234/a")
        parts.clock.advance(20)
        await parts.fail("10.1234/a")  # the bucket starts empty
        parts.clock.advance(1 / RATE)
    await parts.ask("10.1234/known")
    assert [line.partition(":")[0] for line in caplog.messages if "queries about" not in line] == [
        "upstream 1 gets no queries for 20 s",
        "upstream 1 gets queries again after 360 s",
    ]
    (incident,) = parts.guard.log.pauses.read()
    assert (incident.cause.token, incident.cause.sign, incident.ended) == ("upstream-refused", "429", parts.clock())


@pytest.mark.parametrize(("kind", "name"), [("status", EVERY_NAME), ("garbage", "10.1234/known")])
async def test_a_pause_ends_with_another_failure(parts: Parts, kind: str, name: str) -> None:
    parts.upstream.fault(EVERY_NAME, "status", status=429, retry_after=20, count=1)
    await parts.fail("10.1234/a")
    parts.clock.advance(20)
    await parts.fail("10.1234/a")  # the bucket starts empty
    parts.clock.advance(1 / RATE)
    assert parts.guard.log.pauses.under_way is not None
    parts.upstream.fault(name, kind, status=503)
    await parts.fail("10.1234/known")
    assert parts.guard.log.pauses.under_way is None


async def test_an_answer_to_an_earlier_query_does_not_end_a_pause(parts: Parts) -> None:
    parts.upstream.fault(EVERY_NAME, "status", status=429, retry_after=20, count=1)
    await parts.fail("10.1234/a")
    parts.guard.record_answer()
    assert parts.guard.log.pauses.under_way is not None


def test_what_was_not_asked_is_among_the_outcomes() -> None:
    assert list_outcomes() > UNSENT_OUTCOMES
