"""The further names of one request: which of them wait, and which client they are charged to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.doi.name import HandleName
from app.errors import CouldNotVerify, UpstreamTimeout
from app.handle.answer import Answer, ResponseCode
from app.resolver.failure_memory import FailureMemory
from app.resolver.lookup import Lookup
from app.resolver.resolution import Origin
from app.resolver.resolver import Resolver
from app.upstream.source import Priority, UpstreamQuery
from tests.cache.entries import values
from tests.clock import Clock
from tests.parts import usual_cache, usual_patience, usual_ttl_policy

pytestmark = pytest.mark.anyio

CLIENT = "192.0.2.0/24"
NAMES = [HandleName(f"10.5555/{number}") for number in range(6)]


class Upstream:
    """A source that records its queries and answers while `is_open` is set."""

    def __init__(self) -> None:
        self.queries: list[UpstreamQuery] = []
        self.in_flight = self.most_in_flight = 0
        self.error: CouldNotVerify | None = None
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def fetch(self, query: UpstreamQuery) -> Answer:
        self.queries.append(query)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await self.is_open.wait()
        self.in_flight -= 1
        if self.error is not None:
            raise self.error
        return Answer(ResponseCode.SUCCESS, values())

    async def aclose(self) -> None:
        """There is nothing to close."""


@pytest.fixture
async def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
async def resolver(upstream: Upstream) -> AsyncIterator[Resolver]:
    clock = Clock()
    cache = usual_cache("memory:", clock=clock)
    resolver = Resolver(
        cache=cache,
        source=upstream,
        policy=usual_ttl_policy(),
        clock=clock,
        failures=FailureMemory(ttl=0, most=0, max_bytes=1_000_000),
        patience=usual_patience(),
    )
    yield resolver
    await resolver.close()
    await cache.close()


async def test_a_question_is_charged_to_the_client_of_the_request(resolver: Resolver, upstream: Upstream) -> None:
    lookup = Lookup(resolver, CLIENT)
    assert (await lookup.resolve(NAMES[0])).origin is Origin.ASKED
    assert lookup.client == CLIENT
    assert [(list(one.waiters.clients), one.priority) for one in upstream.queries] == [([CLIENT], Priority.PERSON)]


async def test_at_most_so_many_questions_are_under_way(resolver: Resolver, upstream: Upstream) -> None:
    upstream.is_open.clear()
    lookup = Lookup(resolver, CLIENT, concurrency=2)
    tasks = [asyncio.create_task(lookup.resolve(name)) for name in NAMES]
    async with asyncio.timeout(10):
        while len(upstream.queries) < 2:  # noqa: ASYNC110 - a query has no event
            await asyncio.sleep(0)
    upstream.is_open.set()
    await asyncio.gather(*tasks)
    assert (len(upstream.queries), upstream.most_in_flight) == (len(NAMES), 2)


async def test_an_answer_from_memory_needs_no_slot(resolver: Resolver, upstream: Upstream) -> None:
    lookup = Lookup(resolver, CLIENT, concurrency=1)
    await lookup.resolve(NAMES[0])
    async with lookup.slots:
        assert (await lookup.resolve(NAMES[0])).origin is Origin.HIT
    assert len(upstream.queries) == 1


async def test_a_question_that_failed_leaves_its_slot(resolver: Resolver, upstream: Upstream) -> None:
    lookup = Lookup(resolver, CLIENT, concurrency=1)
    upstream.error = UpstreamTimeout()
    with pytest.raises(CouldNotVerify):
        await lookup.resolve(NAMES[0])
    upstream.error = None
    assert (await lookup.resolve(NAMES[1])).origin is Origin.ASKED


async def test_in_the_background_the_same_client_asks_without_slots_and_last(
    resolver: Resolver, upstream: Upstream
) -> None:
    lookup = Lookup(resolver, CLIENT, concurrency=1)
    background = lookup.in_background()
    async with lookup.slots:
        await background.resolve(NAMES[0])
    assert background.client == CLIENT
    assert [(list(one.waiters.clients), one.priority) for one in upstream.queries] == [([CLIENT], Priority.BACKGROUND)]
