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
        self._store = MemoryStore(1_000, clock=clock, timer=clock)
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


async def test_a_full_bucket_gives_every_token_in_fewer_reads() -> None:
    clock = Clock(0.0)
    shared = SharedBucket(clock)
    assert await take_all(allotted(shared, clock)) == BURST
    assert shared.reads <= BURST / 2


async def test_a_process_that_takes_tokens_all_the_time_reads_for_one_in_ten() -> None:
    clock = Clock(0.0)
    shared = SharedBucket(clock, rate=1_000.0)
    bucket = allotted(shared, clock)
    for _ in range(2_000):
        assert await bucket.take() == 0.0
        clock.advance(0.002)
    assert shared.reads < 200
    assert shared.given == 2_000


@table("burst", [1, 2, 4, 9, 17, 33, 65, 100])
async def test_of_nine_tokens_that_leave_the_bucket_eight_are_spent(burst: int) -> None:
    clock, spent = Clock(0.0), 0
    shared = SharedBucket(clock, rate=1_000.0)
    bucket = allotted(shared, clock)
    for _ in range(20):
        for _ in range(burst):
            assert await bucket.take() == 0.0
            spent += 1
        clock.advance(ALLOTMENT_SECONDS)
    assert shared.given <= spent * 9 / 8


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
    # Allotments of one token, and then one of two tokens, of which one is not spent.
    for _ in range(17):
        await bucket.take()
    assert (shared.reads, shared.given) == (17, 18)
    clock.advance(ALLOTMENT_SECONDS)
    await bucket.take()
    assert (shared.reads, shared.given) == (18, 19)
    assert await take_all(bucket) == BURST - 19


async def test_tokens_taken_for_people_are_not_spent_by_bulk_work() -> None:
    clock = Clock(0.0)
    shared = SharedBucket(clock, rate=1e-9)
    bucket = allotted(shared, clock)
    for _ in range(17):
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
    for _ in range(17):
        await bucket.take()
    await bucket.back_off(30)
    assert await bucket.take() == pytest.approx(30 + 1 / RATE)


async def test_a_read_that_ends_after_a_back_off_brings_one_token() -> None:
    clock = Clock(0.0)
    shared = SlowBucket(clock)
    bucket = allotted(shared, clock)
    for _ in range(16):
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
    for _ in range(24):
        await bucket.take()
    before = shared.reads, shared.given
    shared.answers.clear()
    takes = [asyncio.create_task(bucket.take()) for _ in range(5)]
    await asyncio.sleep(0)
    reads, given = shared.reads, shared.given
    shared.answers.set()
    assert await asyncio.gather(*takes) == [0.0] * 5
    # An allotment of three tokens, and four single tokens.
    assert (reads, given) == (before[0] + 5, before[1] + 3 + 4)
    assert [await bucket.take() for _ in range(2)] == [0.0] * 2
    assert shared.reads == reads


@table("seed", range(20))
async def test_processes_together_keep_the_bound_of_the_bucket_in_every_interval(seed: int) -> None:
    dice, clock, spent = random.Random(seed), Clock(0.0), list[float]()
    shared = SharedBucket(clock)
    processes = [allotted(shared, clock, dice.choice([1, 4, 16, 100])) for _ in range(4)]
    for _ in range(3_000):
        if not await dice.choice(processes).take(dice.choice([0.0, 0.0, BURST / 2])):
            spent.append(clock())
        clock.advance(dice.choice([0.0] * 30 + [0.001, 0.01, 0.03] * 5 + [ALLOTMENT_SECONDS * 2]))
    for first, began in enumerate(spent):
        for seconds in (0.0, 0.05, 0.5, 2.0):
            count = bisect_right(spent, began + seconds) - first
            assert count <= BURST + RATE * (seconds + ALLOTMENT_SECONDS) + 1e-6
    assert len(spent) <= shared.given <= BURST + RATE * clock()
