"""The simulated proxy: its tiers, and the same requests to it and to a real resolver."""

from __future__ import annotations

import asyncio
import random

import pytest

from bench import simulation
from bench.names import zipf
from bench.simulation import Shares, SimulatedProxy, Sizes, Tier, simulate
from bench.tests.simulated import ANSWER, entry_size
from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.features.sqlite import store as store_module
from doi_proxy.resolver import resolver as resolver_module
from doi_proxy.resolver.fetcher import FailureMemory, ResolverOptions
from doi_proxy.resolver.resolution import Origin, ResolutionObserver
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.source import UpstreamQuery
from handle_protocol.referral import Answer
from tests.clock import Clock
from tests.parts import usual_timeouts, usual_ttl_policy

pytestmark = [pytest.mark.anyio, pytest.mark.repository]

NAMES = [f"10.5555/{number:04d}" for number in range(400)]
SIZE = entry_size(NAMES[0])
A, B, C = NAMES[:3]
POLICY = usual_ttl_policy()
#: The TTL of ANSWER is longer than the ceiling.
LIFETIME = POLICY.ceiling


def proxy(memory: int, store: int, use_interval: float = 0.0) -> SimulatedProxy:
    return SimulatedProxy(Sizes(memory * SIZE, store, LIFETIME, POLICY.grace, use_interval=use_interval), ANSWER)


def tiers(one: SimulatedProxy, *requests: tuple[str, float]) -> list[Tier]:
    return [one.request(key, now) for key, now in requests]


def test_a_record_is_fetched_once_and_then_answered_from_memory() -> None:
    assert tiers(proxy(2, 0), (A, 0), (A, 1)) == [Tier.UPSTREAM, Tier.MEMORY]


def test_without_a_store_an_evicted_record_is_fetched_again() -> None:
    assert tiers(proxy(1, 0), (A, 0), (B, 1), (A, 2)) == [Tier.UPSTREAM] * 3


def test_the_store_answers_what_memory_evicted_and_full_memory_takes_it_back_at_its_second_use() -> None:
    requests = ((A, 0), (B, 1), (A, 2), (A, 3), (A, 4))
    assert tiers(proxy(1, 2), *requests) == [Tier.UPSTREAM, Tier.UPSTREAM, Tier.STORE, Tier.STORE, Tier.MEMORY]


def test_the_store_evicts_the_least_recently_used() -> None:
    one = proxy(1, 2)
    # The request for A at 2 reaches the store, so C takes the place of B.
    assert tiers(one, (A, 0), (B, 1), (A, 2), (C, 3)) == [Tier.UPSTREAM, Tier.UPSTREAM, Tier.STORE, Tier.UPSTREAM]
    assert tiers(one, (A, 4), (B, 5)) == [Tier.STORE, Tier.UPSTREAM]


def test_a_use_soon_after_the_last_one_does_not_count_for_eviction() -> None:
    one = proxy(1, 2, use_interval=3.0)
    assert tiers(one, (A, 0), (B, 1), (A, 2), (C, 3))[2] is Tier.STORE
    assert tiers(one, (B, 4), (A, 5)) == [Tier.STORE, Tier.UPSTREAM]


def test_a_record_past_its_ttl_is_fetched_again() -> None:
    requests = ((A, 0), (A, LIFETIME - 1), (A, LIFETIME))
    assert tiers(proxy(2, 2), *requests) == [Tier.UPSTREAM, Tier.MEMORY, Tier.UPSTREAM]


def test_a_popular_record_is_refreshed_ahead() -> None:
    one = proxy(2, 2)
    late = [(A, LIFETIME - 3 + number) for number in range(3)]
    assert tiers(one, (A, 0), *late) == [Tier.UPSTREAM, Tier.MEMORY, Tier.MEMORY, Tier.MEMORY]
    assert one.refreshes == 1
    assert tiers(one, (A, LIFETIME)) == [Tier.MEMORY]


def test_shares_count_the_answers_of_each_tier_and_the_queries() -> None:
    found = simulate(proxy(1, 2), [(A, 0), (B, 1), (A, 2), (A, 3), (A, 4)])
    assert found == Shares(memory=1, store=2, upstream=2, refreshes=0)
    assert (found.from_memory, found.from_cache, found.queries) == (0.2, 0.6, 0.4)


def test_the_constants_are_those_of_the_program() -> None:
    constants = (resolver_module._POPULAR_HITS, resolver_module._MAX_REMEMBERED, store_module._USE_INTERVAL)
    assert constants == (simulation.POPULAR_HITS, simulation.MAX_REMEMBERED, simulation.USE_INTERVAL)


class CountedStore(MemoryStore):
    """A store in memory that counts its reads."""

    reads = 0

    async def get(self, key: str) -> Entry | None:
        self.reads += 1
        return await super().get(key)


class Source:
    """Has ANSWER for every name."""

    async def fetch(self, query: UpstreamQuery) -> Answer:
        return ANSWER

    async def aclose(self) -> None:
        """Nothing to close."""


class Refreshes(ResolutionObserver):
    """Counts refreshes ahead."""

    count = 0

    def record_refresh(self) -> None:
        self.count += 1


async def test_each_request_gets_its_answer_from_the_same_tier_as_in_a_real_resolver() -> None:
    clock, observer = Clock(), Refreshes()
    # Room for 60 records in memory and for 150 in the store.
    memory, store = MemoryStore(60 * SIZE, clock=clock), CountedStore(150 * SIZE, clock=clock)
    resolver = Resolver(
        TieredStore(memory, store, clock=clock, ceiling=LIFETIME),
        Source(),
        clock,
        options=ResolverOptions(POLICY, usual_timeouts()),
        failures=FailureMemory(ttl=0, most=0, max_bytes=1_000_000),
        observer=observer,
    )
    simulated = proxy(60, 150)
    chance = random.Random(8)
    expected, found = [], []
    for key in zipf(NAMES, 6_000):
        clock.advance(chance.expovariate(1_200 / LIFETIME))
        expected.append(await tier_of(resolver, store, key))
        found.append(simulated.request(key, clock.now))
    await resolver.close()
    assert found == expected
    assert set(found) == set(Tier)
    assert simulated.refreshes == observer.count > 0


async def tier_of(resolver: Resolver, store: CountedStore, key: str) -> Tier:
    """The tier from which a real resolver answers a request."""
    before = store.reads
    origin = (await resolver.resolve(HandleName(key))).origin
    reads = store.reads - before
    for _ in range(20):  # a refresh ahead ends before the next request
        await asyncio.sleep(0)
    if origin is not Origin.HIT:
        return Tier.UPSTREAM
    return Tier.STORE if reads else Tier.MEMORY
