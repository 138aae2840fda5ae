"""The driver: fresh from the cache, else from the upstream by one question, else stale, and never with a guess."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from doi_names.name import HandleName
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import (
    InvalidAnswer,
    PageAnswer,
    UpstreamRefused,
    UpstreamTimeout,
)
from doi_proxy.resolver.fetcher import FailureMemory, ResolverOptions, ResolverTimeouts
from doi_proxy.resolver.resolution import Conditions, Origin, Resolution, ResolutionObserver
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.budget import Budget, BudgetLimits
from doi_proxy.upstream.source import Priority
from tests.clock import Clock
from tests.fake_upstream import FakeUpstream
from tests.parts import usual_api, usual_cache, usual_resolver, usual_timeouts, usual_ttl_policy
from tests.upstream.guards import open_guard

pytestmark = pytest.mark.anyio

NAME = HandleName("10.5555/Name")
OLD, NEW = "http://example.org/old", "http://example.org/new"
#: Longer than any test, so only the answer or the failure counts.
PATIENT = usual_timeouts(upstream=60)
AUTHORITATIVE = Conditions(authoritative=True)
CERTIFIED = Conditions(certified=True)


@dataclass
class Seen(ResolutionObserver):
    """An observer."""

    failures: list[str] = field(default_factory=list)
    refreshes: int = 0
    confirmations: list[bool] = field(default_factory=list)

    def record_resolution(self, resolution: Resolution) -> None:
        """Not looked at here."""

    def record_failure(self, token: str) -> None:
        self.failures.append(token)

    def record_malformed_locations(self, values: int) -> None:
        """Not looked at here."""

    def record_refresh(self) -> None:
        self.refreshes += 1

    def record_confirmation(self, confirmed: bool) -> None:
        self.confirmations.append(confirmed)


@dataclass
class Bench:
    """A resolver with its upstream, its clock and its observer."""

    upstream: FakeUpstream
    clock: Clock
    cache: TieredStore
    resolver: Resolver
    seen: Seen

    async def ask(self, name: HandleName = NAME, conditions: Conditions | None = None) -> Resolution:
        return await (self.resolver.resolve(name) if conditions is None else self.resolver.resolve(name, conditions))

    def queries(self) -> int:
        return self.upstream.queries(NAME.text)

    async def cached(self, ttl: int = 1000) -> None:
        """NAME leads to OLD, which is cached."""
        self.upstream.put(NAME.text, url=OLD, ttl=ttl)
        assert (await self.ask()).origin is Origin.ASKED


@asynccontextmanager
async def running(
    patience: ResolverTimeouts = PATIENT,
    *,
    store: str = "memory:",
    transport: httpx.AsyncBaseTransport | None = None,
    failure_ttl: float = 0,
) -> AsyncIterator[Bench]:
    """A resolver that queries a name again at once after its failure, or after `failure_ttl` seconds."""
    async with FakeUpstream() as upstream:
        clock, seen = Clock(), Seen()
        source = usual_api(upstream.url, clock=clock, transport=transport)
        failures = FailureMemory(ttl=failure_ttl, most=failure_ttl, max_bytes=1_000_000)
        options = ResolverOptions(usual_ttl_policy(), patience)
        cache = usual_cache(store, clock=clock)
        resolver = Resolver(cache, source, clock, options=options, failures=failures, observer=seen)
        try:
            yield Bench(upstream, clock, cache, resolver, seen)
        finally:
            await resolver.close()
            await source.aclose()
            await cache.close()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with running() as bench:
        yield bench


def target(resolution: Resolution) -> str | None:
    return resolution.record.values[0].text


async def eventually(holds: Callable[[], bool]) -> None:
    """Let time pass until something holds."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - neither a file nor the captured output has an event
            await asyncio.sleep(0.001)


class TestFindFresh:
    """The answer without any waiting."""

    async def test_it_is_there_while_it_is_fresh_in_memory_and_not_due_to_be_refreshed(self, bench: Bench) -> None:
        assert bench.resolver.resolve_now(NAME) is None
        await bench.cached(ttl=100)
        found = bench.resolver.resolve_now(HandleName("10.5555/name"))
        assert found is not None and (found.origin, found.name.text) == (Origin.HIT, "10.5555/name")
        bench.clock.advance(90)
        assert bench.resolver.resolve_now(NAME) is None


class TestOneQuestion:
    """One question per name at a time."""

    async def test_many_callers_make_one_question(self, bench: Bench) -> None:
        bench.upstream.put(NAME.text, url=OLD)
        bench.upstream.hold(NAME.text)
        spellings = [HandleName(f"10.5555/{word}") for word in ("name", "NAME", "Name", "nAmE")] * 25
        callers = [asyncio.create_task(bench.ask(name)) for name in spellings]
        await bench.upstream.arrived(NAME.text)
        bench.upstream.release(NAME.text)
        answers = await asyncio.gather(*callers)
        assert [one.name.text for one in answers] == [one.text for one in spellings]
        assert sorted(one.origin.value for one in answers) == ["asked"] + ["joined"] * 99
        assert bench.queries() == 1

    async def test_names_are_asked_side_by_side(self, bench: Bench) -> None:
        names = [HandleName(f"10.5555/{number}") for number in range(10)]
        for name in names:
            bench.upstream.hold(name.text)
        callers = [asyncio.create_task(bench.ask(name)) for name in names]
        for name in names:
            await bench.upstream.arrived(name.text)
        assert bench.upstream.in_flight == 10
        for name in names:
            bench.upstream.release(name.text)
        await asyncio.gather(*callers)

    async def test_all_callers_may_leave_and_the_answer_is_kept(self, bench: Bench) -> None:
        bench.upstream.put(NAME.text, url=OLD)
        bench.upstream.hold(NAME.text)
        callers = [asyncio.create_task(bench.ask()) for _ in range(3)]
        await bench.upstream.arrived(NAME.text)
        for caller in callers:
            caller.cancel()
        await asyncio.wait(callers)
        bench.upstream.release(NAME.text)
        await eventually(lambda: bench.resolver.resolve_now(NAME) is not None)
        assert bench.queries() == 1

    async def test_all_waiting_callers_get_a_failure_and_no_later_caller_does(self, bench: Bench) -> None:
        bench.upstream.put(NAME.text, url=OLD)
        bench.upstream.fault(NAME.text, "html", count=1)
        bench.upstream.hold(NAME.text)
        callers = [asyncio.create_task(bench.ask()) for _ in range(5)]
        await bench.upstream.arrived(NAME.text)
        bench.upstream.release(NAME.text)
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert [type(one) for one in outcomes] == [PageAnswer] * 5
        assert bench.seen.failures == ["upstream-bad-answer"] * 5
        assert target(await bench.ask()) == OLD
        assert bench.queries() == 2


class TestBypass:
    """`auth` and `cert`."""

    async def test_it_passes_a_negative_entry_too(self, bench: Bench) -> None:
        assert not (await bench.ask()).is_registered
        bench.upstream.put(NAME.text, url=NEW)
        assert (await bench.ask(conditions=AUTHORITATIVE)).is_registered
        assert (await bench.ask()).is_registered

    async def test_a_certified_not_found_is_doubted(self, bench: Bench) -> None:
        await bench.cached()
        bench.upstream.fault(NAME.text, "unavailable_but_known", count=1)
        assert (await bench.ask(conditions=CERTIFIED)).is_registered
        assert bench.seen.confirmations == [False]

    async def test_those_who_ask_the_same_at_the_same_time_share_the_question(self, bench: Bench) -> None:
        bench.upstream.put(NAME.text, url=OLD)
        bench.upstream.hold(NAME.text)
        callers = [asyncio.create_task(bench.ask(conditions=AUTHORITATIVE)) for _ in range(5)]
        await bench.upstream.arrived(NAME.text)
        bench.upstream.release(NAME.text)
        assert {one.origin for one in await asyncio.gather(*callers)} == {Origin.BYPASSED}
        assert bench.queries() == 1


class TestStale:
    """A stale record is preferred over a fresh error."""

    async def test_out_of_patience_it_is_answered_and_the_question_goes_on(self) -> None:
        async with running(usual_timeouts(upstream=0)) as bench:
            await bench.cached(ttl=60)
            bench.clock.advance(61)
            bench.upstream.put(NAME.text, url=NEW)
            bench.upstream.hold(NAME.text)
            stale = [await bench.ask() for _ in range(3)]
            assert {(one.origin, target(one), type(one.failure)) for one in stale} == {
                (Origin.STALE, OLD, UpstreamTimeout)
            }
            await bench.upstream.arrived(NAME.text, 2)
            bench.upstream.release(NAME.text)
            await eventually(lambda: bench.resolver.find_recent_failure(NAME, bench.clock()) is None)
            fresh = await bench.ask()
            assert (fresh.origin, target(fresh), bench.queries()) == (Origin.HIT, NEW, 2)

    async def test_who_knows_nothing_waits_for_as_long_as_it_takes(self) -> None:
        async with running(usual_timeouts(upstream=0)) as bench:
            bench.upstream.put(NAME.text, url=OLD)
            bench.upstream.hold(NAME.text)
            caller = asyncio.create_task(bench.ask())
            await bench.upstream.arrived(NAME.text)
            bench.upstream.release(NAME.text)
            assert target(await caller) == OLD


class TestNotFoundIsDoubted:
    """A fresh "not found" never erases a known record at once."""

    @pytest.mark.parametrize("age", [61, 86400 * 29])
    async def test_what_is_really_gone_is_asked_twice_the_second_time_authoritatively(
        self, bench: Bench, age: float
    ) -> None:
        await bench.cached(ttl=60)
        bench.clock.advance(age)
        bench.upstream.delete(NAME.text)
        assert not (await bench.ask()).is_registered
        assert [one.partition("?")[2] for one in bench.upstream.targets] == ["", "", "auth=true"]
        assert bench.seen.confirmations == [True]

    async def test_what_is_still_there_is_kept(self, bench: Bench) -> None:
        await bench.cached(ttl=60)
        bench.clock.advance(61)
        bench.upstream.fault(NAME.text, "unavailable_but_known", count=1)
        resolution = await bench.ask()
        assert (resolution.origin, target(resolution)) == (Origin.RENEWED, OLD)
        assert bench.seen.confirmations == [False]

    async def test_where_it_cannot_be_confirmed_the_record_is_answered_stale_and_kept(self) -> None:
        said = iter(
            [
                (
                    200,
                    {
                        "responseCode": 1,
                        "handle": NAME.text,
                        "values": [{"index": 1, "type": "URL", "data": OLD, "ttl": 60}],
                    },
                ),
                (404, {"responseCode": 100, "handle": NAME.text}),
                (500, {"responseCode": 2, "handle": NAME.text}),
            ]
        )

        def answer(request: httpx.Request) -> httpx.Response:
            status, body = next(said)
            return httpx.Response(status, stream=httpx.ByteStream(json.dumps(body).encode()))

        async with running(transport=httpx.MockTransport(answer)) as bench:
            assert (await bench.ask()).is_registered
            bench.clock.advance(61)
            stale = await bench.ask()
            assert (stale.origin, stale.is_registered, type(stale.failure)) == (Origin.STALE, True, UpstreamRefused)
            assert (await bench.ask()).is_registered
            assert next(said, None) is None


class TestRefreshAhead:
    """A popular record is refreshed in the last tenth of its lifetime."""

    async def test_the_third_hit_in_the_window_begins_one_question(self, bench: Bench) -> None:
        await bench.cached(ttl=1000)
        bench.upstream.put(NAME.text, url=NEW, ttl=1000)
        bench.clock.advance(900)
        bench.upstream.hold(NAME.text)
        hits = [await bench.ask() for _ in range(20)]
        assert {(one.origin, target(one)) for one in hits} == {(Origin.HIT, OLD)}
        await bench.upstream.arrived(NAME.text, 2)
        bench.upstream.release(NAME.text)
        await eventually(lambda: bench.resolver.resolve_now(NAME) is not None)
        renewed = await bench.ask()
        assert (renewed.origin, target(renewed)) == (Origin.HIT, NEW)
        assert (bench.queries(), bench.seen.refreshes) == (2, 1)

    @pytest.mark.parametrize(
        ("age", "hits", "priority"),
        [
            (900, 2, Priority.PERSON),
            (899, 50, Priority.PERSON),
            (900, 50, Priority.BULK),
        ],
        ids=["two hits", "before the window", "bulk"],
    )
    async def test_there_is_none(self, bench: Bench, age: float, hits: int, priority: Priority) -> None:
        await bench.cached(ttl=1000)
        bench.clock.advance(age)
        for _ in range(hits):
            assert (await bench.ask(conditions=Conditions(priority=priority))).origin is Origin.HIT
        assert bench.seen.refreshes == 0
        # Nothing is in flight either: the next caller begins a query.
        bench.clock.advance(1000)
        assert (await bench.ask()).origin is Origin.RENEWED

    async def test_a_caller_after_the_end_joins_the_refresh(self, bench: Bench) -> None:
        await bench.cached(ttl=1000)
        bench.clock.advance(900)
        bench.upstream.hold(NAME.text)
        for _ in range(3):
            await bench.ask()
        await bench.upstream.arrived(NAME.text, 2)
        bench.clock.advance(200)
        caller = asyncio.create_task(bench.ask())
        await asyncio.sleep(0)
        bench.upstream.release(NAME.text)
        assert ((await caller).origin, bench.queries()) == (Origin.JOINED, 2)

    async def test_one_that_fails_is_not_reported_and_not_repeated_before_the_recheck(self) -> None:
        async with running(usual_timeouts(upstream=60, recheck=30)) as bench:
            await bench.cached(ttl=1000)
            bench.clock.advance(900)
            bench.upstream.fault(NAME.text, "html")
            for _ in range(3):
                await bench.ask()
            await bench.upstream.arrived(NAME.text, 2)
            # Joining it waits for its end.
            bench.clock.advance(100)
            assert (await bench.ask()).origin is Origin.STALE
            assert (bench.queries(), bench.seen.failures) == (2, [])


async def test_a_person_does_not_wait_behind_a_bulk_job_s_question_for_the_same_name() -> None:
    """The question of a bulk job waits its turn; a person who wants the same name must not inherit that wait."""
    async with FakeUpstream() as upstream:
        clock = Clock()
        # Three places, one of them for others than people, which is taken.
        budget = Budget(BudgetLimits(rate=1e6, burst=1e6, max_concurrency=3), clock)
        api = usual_api(upstream.url)
        source = open_guard(api, budget, clock)
        cache = usual_cache("memory:", clock=clock)
        resolver = usual_resolver(cache, source, clock)
        upstream.hold("10.5555/first")
        bulk = Conditions(priority=Priority.BULK)
        tasks = [asyncio.create_task(resolver.resolve(HandleName("10.5555/first"), bulk))]
        await upstream.arrived("10.5555/first")
        upstream.put(NAME.text, url=OLD)
        tasks.append(asyncio.create_task(resolver.resolve(NAME, bulk)))
        await eventually(lambda: budget.waiting == 1)
        try:
            async with asyncio.timeout(2):
                person = await resolver.resolve(NAME)
            assert target(person) == OLD
        finally:
            upstream.release("10.5555/first")
            await asyncio.gather(*tasks)
            await resolver.close()
            await source.aclose()


async def test_a_question_past_the_cache_is_asked_and_its_answer_ends_the_memory_of_a_failure() -> None:
    async with running(failure_ttl=15) as bench:
        bench.upstream.fault(NAME.text, "html", count=1)
        bench.upstream.put(NAME.text, url=OLD)
        for _ in range(2):
            with pytest.raises(InvalidAnswer):
                await bench.ask()
        assert bench.queries() == 1
        assert (await bench.ask(conditions=AUTHORITATIVE)).origin is Origin.BYPASSED
        assert (await bench.ask()).origin is Origin.HIT


async def test_failures_of_a_name_do_not_keep_one_another_alive(bench: Bench) -> None:
    gc.freeze()  # the collection below looks at nothing older
    bench.upstream.fault(NAME.text, "html")
    kept = []
    for _ in range(20):
        with pytest.raises(InvalidAnswer) as caught:
            await bench.ask()
        kept.append(weakref.ref(caught.value))
        del caught
    gc.collect()
    assert sum(one() is not None for one in kept) <= 2
