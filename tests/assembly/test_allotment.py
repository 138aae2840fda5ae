"""The tokens of the budget: allotments take fewer reads of the shared bucket and never more tokens than it has."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right

import pytest

from doi_proxy.assembly.allotment import ALLOTMENT_SECONDS, AllottedBucket
from doi_proxy.cache.memory import MemoryStore
from tests.clock import Clock
from tests.table import table

pytestmark = pytest.mark.anyio

RATE, BURST = 100.0, 200.0


class SharedBucket:
    """A bucket in a store that several processes use. Counts how often it is read, and the tokens that it gave."""

    def __init__(self, clock: Clock, rate: float = RATE) -> None:
        self._store = MemoryStore(1_000, clock=clock)
        self._rate = rate
        self.reads = 0
        self.given = 0
        self.tokens = 0.0

    async def take(self, leaving: float = 0.0, count: int = 1) -> float:
        self.reads += 1
        wait = await self._store.take("bucket", self._rate, BURST, leaving, count)
        self.given += 0 if wait else count
        return wait

    async def back_off(self, seconds: float) -> None:
        await self._store.back_off("bucket", seconds)

    def set_rate(self, rate: float, burst: float) -> None:
        raise NotImplementedError


def allotted(shared: SharedBucket, clock: Clock, most: int = 16) -> AllottedBucket:
    return AllottedBucket(shared, burst=BURST, most=most, clock=clock)


async def take_all(bucket: AllottedBucket) -> int:
    taken = 0
    while taken <= BURST and not await bucket.take():
        taken += 1
    return taken


async def test_a_full_bucket_gives_every_token_in_few_reads() -> None:
    clock = Clock(0.0)
    shared = SharedBucket(clock)
    assert await take_all(allotted(shared, clock)) == BURST
    assert shared.reads < BURST / 2


async def test_a_process_that_seldom_takes_a_token_takes_one_at_a_time() -> None:
    clock = Clock(0.0)
    shared = SharedBucket(clock, rate=1e-9)
    bucket = allotted(shared, clock)
    for _ in range(50):
        assert await bucket.take() == 0.0
        clock.advance(ALLOTMENT_SECONDS)
    assert await take_all(bucket) == BURST - 50


async def test_an_allotment_of_one_reads_for_every_token() -> None:
    clock = Clock(0.0)
    shared = SharedBucket(clock)
    bucket = allotted(shared, clock, most=1)
    for _ in range(20):
        await bucket.take()
    assert shared.reads == 20


async def test_tokens_that_are_not_spent_in_time_are_dropped() -> None:
    clock = Clock(0.0)
    shared = SharedBucket(clock, rate=1e-9)
    bucket = allotted(shared, clock)
    # Allotments of 1, 2 and 4 tokens, of which three are not spent.
    for _ in range(4):
        await bucket.take()
    reads = shared.reads
    clock.advance(ALLOTMENT_SECONDS)
    await bucket.take()
    assert shared.reads == reads + 1
    assert await take_all(bucket) == BURST - 1 - 2 - 4 - 1


async def test_tokens_taken_for_people_are_not_spent_by_bulk_work() -> None:
    clock = Clock(0.0)
    shared = SharedBucket(clock, rate=1e-9)
    bucket = allotted(shared, clock)
    for _ in range(4):
        await bucket.take()
    assert await bucket.take(leaving=BURST / 2) == 0.0
    reads = shared.reads
    assert await bucket.take() == 0.0
    assert shared.reads == reads


async def test_bulk_work_leaves_the_tokens_reserved_for_people() -> None:
    clock, taken = Clock(0.0), 0
    bucket = allotted(SharedBucket(clock, rate=1e-9), clock)
    while not await bucket.take(leaving=BURST / 2):
        taken += 1
    assert taken == BURST / 2
    assert await take_all(bucket) == BURST / 2


async def test_a_back_off_drops_the_allotment() -> None:
    clock = Clock(0.0)
    bucket = allotted(SharedBucket(clock), clock)
    for _ in range(20):
        await bucket.take()
    await bucket.back_off(30)
    assert await bucket.take() == pytest.approx(30 + 1 / RATE)


async def test_a_read_that_ends_after_a_back_off_brings_one_token() -> None:
    clock = Clock(0.0)
    shared = SlowBucket(clock)
    bucket = allotted(shared, clock)
    await bucket.take()
    shared.answers.clear()
    read = asyncio.create_task(bucket.take())
    await asyncio.sleep(0)
    back_off = asyncio.create_task(bucket.back_off(30))
    await asyncio.sleep(0)
    shared.answers.set()
    await asyncio.gather(read, back_off)
    assert read.result() == 0.0
    assert await bucket.take() == pytest.approx(30 + 1 / RATE)


class SlowBucket(SharedBucket):
    """A bucket of another host: a token takes a while to come."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.answers = asyncio.Event()
        self.answers.set()

    async def take(self, leaving: float = 0.0, count: int = 1) -> float:
        wait = await super().take(leaving, count)
        await self.answers.wait()
        return wait


async def test_takes_during_a_read_take_one_token_each() -> None:
    clock = Clock(0.0)
    shared = SlowBucket(clock)
    bucket = allotted(shared, clock)
    for _ in range(3):
        await bucket.take()
    shared.answers.clear()
    takes = [asyncio.create_task(bucket.take()) for _ in range(5)]
    await asyncio.sleep(0)
    reads, given = shared.reads, shared.given
    shared.answers.set()
    assert await asyncio.gather(*takes) == [0.0] * 5
    # Before, allotments of one and two tokens. Then one of four tokens, and four single tokens.
    assert (reads, given) == (2 + 5, 1 + 2 + 4 + 4)
    assert [await bucket.take() for _ in range(3)] == [0.0] * 3
    assert shared.reads == reads


@table("seed", range(20))
async def test_processes_together_keep_the_bound_of_the_bucket_in_every_interval(seed: int) -> None:
    dice, clock, spent = random.Random(seed), Clock(0.0), list[float]()
    shared = SharedBucket(clock)
    processes = [allotted(shared, clock, dice.choice([1, 4, 16, 100])) for _ in range(4)]
    for _ in range(3_000):
        if not await dice.choice(processes).take(dice.choice([0.0, 0.0, BURST / 2])):
            spent.append(clock())
        clock.advance(dice.choice([0.0, 0.0, 0.001, 0.01, 0.03, ALLOTMENT_SECONDS * 2]))
    for first, began in enumerate(spent):
        for seconds in (0.0, 0.05, 0.5, 2.0):
            count = bisect_right(spent, began + seconds) - first
            assert count <= BURST + RATE * (seconds + ALLOTMENT_SECONDS) + 1e-6
    assert len(spent) <= BURST + RATE * clock()
