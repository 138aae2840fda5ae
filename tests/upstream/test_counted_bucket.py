"""The tokens of several instances that count their queries in one place."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import httpx
import pytest

from doi_proxy.errors import InvalidAnswer
from doi_proxy.upstream.budget import MAX_SLOW_PREFIXES, SLOW_AFTER, SLOW_PREFIX_SECONDS, Place, choose_slow
from doi_proxy.upstream.client import read_body
from doi_proxy.upstream.counted_bucket import CountedBucket
from doi_proxy.upstream.source import Priority
from tests.clock import Clock
from tests.table import table
from tests.upstream.test_upstream_budget import budget_of

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


async def test_a_longer_body_is_refused() -> None:
    with pytest.raises(InvalidAnswer, match="longer than 99 bytes"):
        await read("", 99, *cut(b" " * 100))


async def test_a_compressed_body_is_refused_as_soon_as_it_unfolds_too_far() -> None:
    with pytest.raises(InvalidAnswer, match="longer than 1000 bytes"):
        await read("gzip", 1000, gzip.compress(b" " * 10_000_000))


async def test_a_compressed_body_that_never_unfolds_is_refused_by_its_own_length() -> None:
    with pytest.raises(InvalidAnswer, match="longer than 100 bytes"):
        await read("gzip", 100, *cut(gzip.compress(b"") + b"\x00" * 200))


@pytest.mark.parametrize(
    ("coding", "data"),
    [("br", b"x"), ("gzip, gzip", b"x"), ("gzip", b"not gzip"), ("gzip", gzip.compress(TEXT)[:-4])],
    ids=["never offered", "twice", "not gzip", "cut off"],
)
async def test_what_cannot_be_decompressed_is_no_valid_answer(coding: str, data: bytes) -> None:
    with pytest.raises(InvalidAnswer):
        await read(coding, 10_000, *cut(data))


async def test_an_empty_body_needs_no_gzip_header() -> None:
    assert await read("gzip", 10) == b""


# --- The places of queries in flight, and the prefixes whose queries are slow ----------------------------------------


A, B, C = "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"


def place_of(client: str | None, *, since: float = 0.0, is_slow: bool = True) -> Place:
    return Place(client, "10.1000", since, is_slow=is_slow)


@table(
    ("clients", "newcomers", "expected"),
    [
        # Of equal clients, the query that was sent last gives way.
        ([A, B, A], [C], 2),
        ([A, A, B, B], [A], 3),
        # A client never gives way to itself.
        ([A, A, A], [A], None),
        ([A, A, A], [A, B], 2),
        # Four networks of one customer are one.
        ([B, B, *(f"2001:db8:0:{n}::/64" for n in range(4))], [C], 2),
        # As many slow queries as there are places for.
        ([A, A], [B], None),
        ([A, A, A], [], None),
    ],
)
def test_the_slow_query_that_gives_way(clients: list[str], newcomers: list[str], expected: int | None) -> None:
    places = [place_of(client, since=number) for number, client in enumerate(clients)]
    chosen = choose_slow(places, newcomers, most=2)
    assert chosen is (None if expected is None else places[expected])


def test_a_slow_query_takes_the_place_of_one_of_a_client_with_two_more() -> None:
    places = [place_of(client, since=number) for number, client in enumerate([A, A, A, B])]
    chosen = [choose_slow(places, [client], least_lead=2) for client in (A, B, C)]
    assert chosen == [None, places[2], places[2]]
    assert choose_slow(places[1:], [B], least_lead=2) is None


def test_a_quick_query_does_not_give_way_and_one_slow_query_at_a_time_does() -> None:
    quick = [place_of(A, is_slow=False) for _ in range(9)]
    assert choose_slow(quick, [B]) is None
    slow = [place_of(A) for _ in range(9)]
    slow[4].gives_way = True
    assert choose_slow(slow, [B]) is None


async def test_a_slow_prefix_is_forgotten_when_it_answers_or_after_ten_minutes() -> None:
    clock = Clock()
    budget = budget_of(clock)
    for prefix in ("10.1", "10.2"):
        async with budget.admit(Priority.PERSON, 1, prefix=prefix):
            clock.advance(SLOW_AFTER)
    async with budget.admit(Priority.PERSON, 1, prefix="10.2"):
        pass
    assert list(budget._slow_prefixes) == [hash("10.1")]
    clock.advance(SLOW_PREFIX_SECONDS)
    assert list(budget._slow_prefixes) == []


async def test_a_query_of_a_slow_server_is_slow_from_its_start() -> None:
    budget = budget_of(Clock())
    async with budget.admit(Priority.PERSON, 1, prefix="10.1"), budget.admit(Priority.PERSON, 1, prefix="10.2"):
        budget.mark_slow("10.2")
        assert [place.is_slow for place in budget._people.places] == [False, True]
        assert list(budget._slow_prefixes) == [hash("10.2")]


async def test_a_flood_of_slow_prefixes_takes_bounded_memory() -> None:
    budget = budget_of(Clock())
    for number in range(MAX_SLOW_PREFIXES + 100):
        budget._remember_slow(f"10.{number}")
    assert len(budget._slow_prefixes) == MAX_SLOW_PREFIXES
    assert hash("10.0") not in budget._slow_prefixes
