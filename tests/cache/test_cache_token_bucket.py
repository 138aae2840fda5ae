"""Every place that holds a token bucket counts as app.rationing.token_bucket: process, memory, SQLite and Valkey."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest
from redis.asyncio import Redis

from app.cache.memory import MemoryStore
from app.cache.store import SharedStore
from app.features.sqlite.store import SqliteStore
from app.features.valkey.layout import KEY_PREFIX
from app.features.valkey.store import ValkeyStore
from app.rationing.token_bucket import MAX_BACK_OFF, Bucket, back_off, take_token
from app.upstream.budget import LocalBucket
from tests.clock import Clock

pytestmark = pytest.mark.anyio

#: Slow enough that the time a test takes changes no answer: a token takes 100 seconds.
RATE, BURST = 0.01, 5.0
#: Valkey counts with its own clock, which goes on during a test; in seconds.
TEST_TIME = 20.0

_numbers = count()


class Place(Protocol):
    """A bucket of RATE and BURST in one of the places."""

    async def take(self, leaving: float = 0.0, count: int = 1) -> float:
        """See Store.take."""

    async def back_off(self, seconds: float) -> None:
        """See Store.back_off."""

    async def advance(self, seconds: float) -> None:
        """Let time pass, or set the clock back."""


class ProcessPlace:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bucket = LocalBucket(RATE, BURST, clock)
        self.back_off = self._bucket.back_off

    async def take(self, leaving: float = 0.0, count: int = 1) -> float:
        if count == 1:
            return await self._bucket.take(leaving)
        pytest.skip("the bucket of one process gives one token at a time")

    async def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)


class StorePlace:
    def __init__(self, store: SharedStore, clock: Clock, name: str = "bucket") -> None:
        self.store = store
        self.name = name
        self._clock = clock

    async def take(self, leaving: float = 0.0, count: int = 1) -> float:
        return await self.store.take(self.name, RATE, BURST, leaving, count)

    async def back_off(self, seconds: float) -> None:
        await self.store.back_off(self.name, seconds)

    async def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)


class ValkeyPlace(StorePlace):
    """Time passes when the times in the bucket move back: the server's clock cannot be set."""

    def __init__(self, store: SharedStore, clock: Clock, server: Redis) -> None:
        super().__init__(store, clock, f"bucket {next(_numbers)}")
        self.server = server
        self.key = f"{KEY_PREFIX}bucket:{self.name}"

    async def advance(self, seconds: float) -> None:
        if await self.server.exists(self.key):
            for field in ("at", "blocked_until"):
                await self.server.hincrbyfloat(self.key, field, -seconds)


@pytest.fixture(params=["process", "memory", "sqlite", pytest.param("valkey", marks=pytest.mark.valkey)])
async def place(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "process":
        yield ProcessPlace(clock)
    elif request.param == "memory":
        yield StorePlace(MemoryStore(1_000, clock=clock), clock)
    elif request.param == "sqlite":
        store = SqliteStore(tmp_path / "store.sqlite3", clock=clock, max_bytes=1_000_000)
        yield StorePlace(store, clock)
        await store.close()
    else:
        url = request.getfixturevalue("valkey_url")
        async with Redis.from_url(url.replace("valkey", "redis", 1)) as server:
            shared = ValkeyStore(url, clock=clock, timeout=5.0)
            yield ValkeyPlace(shared, clock, server)
            await shared.close()


async def take_all(place: Place) -> int:
    """How many tokens there are; they are taken."""
    taken = 0
    while taken <= BURST and not await place.take():
        taken += 1
    return taken


def about(seconds: float) -> object:
    return pytest.approx(seconds, abs=TEST_TIME)


async def test_a_bucket_starts_full_and_gains_its_rate(place: Place) -> None:
    assert await take_all(place) == 5
    assert await place.take() == about(100)
    await place.advance(250)
    assert await take_all(place) == 2
    await place.advance(1e6)
    assert await take_all(place) == 5


async def test_tokens_that_are_left_for_others_are_not_taken(place: Place) -> None:
    assert [await place.take(3) for _ in range(3)] == [0.0, 0.0, about(100)]
    assert await take_all(place) == 3


async def test_several_tokens_are_taken_together_or_not_at_all(place: Place) -> None:
    assert await place.take(count=3) == 0.0
    assert await place.take(count=3) == about(100)
    assert await place.take(1, count=2) == about(100)
    assert await place.take(count=2) == 0.0
    # A full bucket cannot leave more than the rest of it.
    await place.advance(1e6)
    assert await place.take(100, count=4) == 0.0
    assert await take_all(place) == 1


async def test_a_bucket_is_empty_after_a_back_off(place: Place) -> None:
    await place.take()
    await place.back_off(30)
    await place.advance(30)
    assert await take_all(place) == 0
    await place.advance(230)
    assert await take_all(place) == 2


async def test_a_back_off_of_a_bucket_that_was_never_used_empties_it(place: Place) -> None:
    await place.back_off(30)
    assert await place.take() == about(130)
    await place.advance(30)
    assert await take_all(place) == 0


async def test_taking_during_a_back_off_does_not_change_the_bucket(place: Place) -> None:
    await place.back_off(1_000)
    await place.advance(900)
    assert await place.take() == about(200)
    await place.advance(100)
    assert await take_all(place) == 0


async def test_a_shorter_back_off_does_not_end_a_longer_one(place: Place) -> None:
    await place.back_off(1_000)
    await place.back_off(5)
    assert await place.take() == about(1_100)


async def test_no_back_off_is_longer_than_the_longest(place: Place) -> None:
    await place.back_off(1e13)
    assert await place.take() == about(MAX_BACK_OFF + 100)


async def test_after_a_clock_was_set_back_a_bucket_works_as_before(place: Place) -> None:
    assert await take_all(place) == 5
    await place.advance(-172_800)
    assert await place.take() == about(100)
    await place.advance(130)
    assert await take_all(place) == 1


async def test_after_a_clock_was_set_back_a_back_off_takes_as_long_as_before(place: Place) -> None:
    await place.back_off(1_000)
    await place.advance(-172_800)
    assert await place.take() == about(1_100)


@pytest.mark.parametrize("seed", range(5))
async def test_every_place_answers_as_the_arithmetic_does(place: Place, seed: int) -> None:
    dice, model, now = random.Random(seed), None, 0.0
    for _ in range(60):
        action = dice.choice(["take", "take", "take", "advance", "advance", "back off"])
        if action == "take":
            leaving = dice.choice([0.0, 0.0, 2.0])
            model, wait = take_token(model, now, RATE, BURST, leaving)
            answer = await place.take(leaving)
            assert (answer == 0.0, answer) == (wait == 0.0, about(wait))
        elif action == "advance":
            # No sum of these is a whole number of tokens, which a slow test could cross.
            seconds = dice.choice([30.0, 130.0, 230.0, 330.0])
            now += seconds
            await place.advance(seconds)
        else:
            seconds = dice.choice([5.0, 105.0])
            model = back_off(model, now, seconds)
            await place.back_off(seconds)


ODD = [
    Bucket(5.0, 0.0, 1e13),
    Bucket(1e300, 0.0, 0.0),
    Bucket(-1e300, 0.0, 0.0),
    Bucket(0.0, 1e13, 0.0),
    Bucket(0.0, -1e300, 0.0),
    Bucket(float("inf"), float("-inf"), float("inf")),
    Bucket(0.0, float("inf"), float("inf")),
]


@pytest.mark.parametrize("odd", ODD)
async def test_odd_numbers_in_sqlite_count_as_the_arithmetic_says(odd: Bucket, clock: Clock, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.sqlite3", clock=clock, max_bytes=1_000_000)
    await store.take("bucket", RATE, BURST)
    with closing(sqlite3.connect(tmp_path / "store.sqlite3.coordination", isolation_level=None)) as file:
        file.execute(
            "UPDATE buckets SET tokens = ?, at = ?, blocked_until = ?", (odd.tokens, odd.at, odd.blocked_until)
        )
    assert await store.take("bucket", RATE, BURST) == take_token(odd, clock(), RATE, BURST)[1]
    await store.close()


@pytest.mark.valkey
@pytest.mark.parametrize("odd", [*ODD, Bucket(float("nan"), float("nan"), float("nan"))])
async def test_odd_numbers_in_valkey_count_as_the_arithmetic_says(odd: Bucket, clock: Clock, valkey_url: str) -> None:
    store = ValkeyStore(valkey_url, clock=clock, timeout=5.0)
    async with Redis.from_url(valkey_url.replace("valkey", "redis", 1)) as server:
        place = ValkeyPlace(store, clock, server)
        fields = {"tokens": odd.tokens, "at": odd.at, "blocked_until": odd.blocked_until}
        await server.hset(place.key, mapping={name: repr(number) for name, number in fields.items()})
        assert await place.take() == about(take_token(odd, clock(), RATE, BURST)[1])
        await server.hset(place.key, mapping=dict.fromkeys(fields, "not a number"))
        assert await place.take() == 0.0
    await store.close()
