"""The places of queries in flight, and the prefixes whose queries are slow."""

from __future__ import annotations

import pytest

from doi_proxy.upstream.budget import MAX_SLOW_PREFIXES, SLOW_AFTER, SLOW_PREFIX_SECONDS, Place, choose_slow
from doi_proxy.upstream.source import Priority
from tests.clock import Clock
from tests.table import table
from tests.upstream.test_upstream_budget import budget_of

pytestmark = pytest.mark.anyio

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
