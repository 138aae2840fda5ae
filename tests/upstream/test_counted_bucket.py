"""The tokens of several instances that count their queries in one place."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx
import pytest

from doi_proxy.errors import InvalidAnswer
from doi_proxy.upstream.client import read_body
from doi_proxy.upstream.counted_bucket import CountedBucket
from tests.clock import Clock
from tests.table import table

pytestmark = pytest.mark.anyio


RATE: Final = 10.0
BURST: Final = 10.0
STEP: Final = 0.05


@dataclass
class Service:
    """Instances that take a token whenever there is one, and what counts their queries."""

    clock: Clock
    instances: int = 2
    counter: int = 0
    is_away: bool = False
    sent: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.buckets = [
            CountedBucket(self._spend, RATE, BURST / self.instances, self.instances, self.clock)
            for _ in range(self.instances)
        ]

    async def _spend(self) -> int | None:
        if self.is_away:
            return None
        self.counter += 1
        return self.counter

    async def run(self, seconds: float, busy: Sequence[int]) -> int:
        """Let the `busy` instances send what they can. Returns the queries of all."""
        before = len(self.sent)
        for _ in range(round(seconds / STEP)):
            for number in busy:
                while await self.buckets[number].take() == 0.0:
                    self.sent.append((self.clock(), number))
            self.clock.advance(STEP)
            for _ in range(3):  # the numbers arrive
                await asyncio.sleep(0)
        return len(self.sent) - before


@table("instances", [1, 2, 5])
async def test_all_instances_together_have_one_rate(instances: int) -> None:
    service = Service(Clock(), instances)
    sent = await service.run(60, range(instances))
    assert 60 * RATE - BURST <= sent <= 60 * RATE + BURST + instances


async def test_one_busy_instance_has_the_whole_rate() -> None:
    assert await Service(Clock()).run(60, [0]) >= 60 * RATE


async def test_an_instance_that_was_idle_sends_its_first_query_at_once() -> None:
    service = Service(Clock())
    await service.run(60, [0])
    assert await service.buckets[1].take() == 0.0
    # It now knows what the other one sent, and both go on.
    assert await service.run(60, [0, 1]) <= 60 * RATE + BURST + 2
    assert {number for _, number in service.sent[-40:]} == {0, 1}


async def test_while_nothing_counts_each_has_its_part_and_afterwards_the_rate_is_exact_again() -> None:
    service = Service(Clock())
    await service.run(10, [0, 1])
    service.is_away = True
    away = await service.run(60, [0, 1])
    assert 60 * RATE * 0.9 <= away <= 60 * RATE + 2
    assert await service.run(60, [0]) <= 60 * RATE / 2 + BURST / 2 + 1
    service.is_away = False
    assert await service.run(60, [0, 1]) <= 60 * RATE + BURST + 2


async def test_a_counter_that_stands_still_delays_a_few_queries_and_lets_no_more_through() -> None:
    counting, asked = asyncio.Event(), 0

    async def spend() -> int:
        nonlocal asked
        asked += 1
        await counting.wait()
        return asked

    bucket = CountedBucket(spend, RATE, 20.0, 2, Clock())
    takes = [asyncio.create_task(bucket.take()) for _ in range(12)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert (sum(take.done() for take in takes), asked) == (8, 8)
    counting.set()
    assert await asyncio.gather(*takes) == [0.0] * 12
    assert bucket.tokens == 8.0


async def test_numbers_that_arrive_in_another_order_cost_no_token() -> None:
    counted, ends = iter(range(1, 100)), [asyncio.Event() for _ in range(9)]
    order = iter([0, 8, 7, 6, 5, 4, 3, 2, 1, 0])

    async def spend() -> int:
        count = next(counted)
        await ends[next(order)].wait()
        return count

    bucket = CountedBucket(spend, RATE, 20.0, 2, Clock())
    ends[0].set()
    await bucket.take()
    takes = [asyncio.create_task(bucket.take()) for _ in range(8)]
    for end in ends:
        await asyncio.sleep(0)
        end.set()
    await asyncio.gather(*takes)
    await bucket.take()
    assert bucket.tokens == 10.0


async def test_a_counter_that_begins_anew_costs_no_token() -> None:
    service = Service(Clock())
    await service.run(30, [0, 1])
    service.counter = 0
    assert 60 * RATE - BURST <= await service.run(60, [0, 1]) <= 60 * RATE + BURST + 2


async def test_tokens_are_left_to_others_and_a_pause_empties_the_bucket() -> None:
    clock = Clock()
    bucket = Service(clock).buckets[0]
    assert [await bucket.take(2.0) for _ in range(3)] == [0.0] * 3
    assert await bucket.take(2.0) == pytest.approx(0.1)
    await bucket.back_off(30.0)
    assert bucket.tokens == 0.0
    assert await bucket.take() == pytest.approx(30.1)
    bucket.set_rate(1.0, 2.0)
    clock.advance(31.0)
    assert bucket.tokens == pytest.approx(1.0)
    assert await bucket.take() == 0.0


# --- Bodies that are bounded while they arrive -----------------------------------------------------------------------


TEXT = b'{"responseCode":100}' * 50


async def read(coding: str, most: int, *pieces: bytes) -> bytes:
    async def stream() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return await read_body(httpx.Response(200, headers={"content-encoding": coding}, content=stream()), most)


def cut(data: bytes, size: int = 7) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("coding", ["", "identity", " Identity "])
async def test_a_body_as_long_as_the_cap_is_taken(coding: str) -> None:
    assert await read(coding, len(TEXT), *cut(TEXT)) == TEXT


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP"])
async def test_a_compressed_body_that_unfolds_to_the_cap_is_taken(coding: str) -> None:
    assert await read(coding, len(TEXT), *cut(gzip.compress(TEXT))) == TEXT


async def test_a_compressed_body_is_refused_as_soon_as_it_unfolds_too_far() -> None:
    with pytest.raises(InvalidAnswer, match="longer than 1000 bytes"):
        await read("gzip", 1000, gzip.compress(b" " * 10_000_000))


async def test_a_compressed_body_that_never_unfolds_is_refused_by_its_own_length() -> None:
    with pytest.raises(InvalidAnswer, match="longer than 100 bytes"):
        await read("gzip", 100, *cut(gzip.compress(b"") + b"\x00" * 200))
