"""Lines of waiting questions, one for each client, served in turn."""

from __future__ import annotations

import random
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.upstream.budget import FairQueue
from tests.table import table

A, B, C = "192.0.2.0/24", "198.51.100.0/24", "2001:db8::/64"


def lines(most: int = 1000, most_of_client: int = 100) -> FairQueue[str]:
    return FairQueue(most, most_of_client)


def fill(waiting: FairQueue[str], *queries: str) -> None:
    """Put queries such as "a1" into the lines of the clients that they begin with."""
    for query in queries:
        waiting.join({"a": A, "b": B, "c": C}[query[0]], query)


def served(waiting: FairQueue[str]) -> list[str]:
    """The queries in the order in which they are served."""
    order = []
    while len(waiting.queries):
        client, query = next(waiting.turns())
        waiting.serve(client, query)
        order.append(query)
    return order


def test_a_client_alone_is_served_first_come_first_served() -> None:
    waiting = lines()
    fill(waiting, "a1", "a2", "a3")
    assert served(waiting) == ["a1", "a2", "a3"]


def test_clients_take_turns_however_long_their_lines_are() -> None:
    waiting = lines()
    fill(waiting, "a1", "a2", "a3", "a4", "b1", "c1", "c2")
    assert served(waiting) == ["a1", "b1", "c1", "a2", "c2", "a3", "a4"]


def test_a_client_that_comes_late_waits_one_turn_of_each_other_client() -> None:
    waiting = lines()
    fill(waiting, *(f"a{n}" for n in range(50)), *(f"b{n}" for n in range(50)))
    fill(waiting, "c1")
    assert served(waiting)[:3] == ["a0", "b0", "c1"]


def test_a_client_that_comes_again_after_its_turn_does_not_overtake() -> None:
    waiting = lines()
    fill(waiting, "a1", "b1", "b2")
    waiting.serve(A, "a1")
    fill(waiting, "a2")
    assert served(waiting) == ["b1", "a2", "b2"]


def test_a_query_of_two_clients_is_served_at_the_first_turn_of_either() -> None:
    waiting = lines()
    fill(waiting, "a1", "a2", "a3", "a4")
    waiting.join(B, "a4")
    assert (len(waiting.queries), waiting.clients, waiting.length(A), waiting.length(B)) == (4, 2, 4, 1)
    assert served(waiting) == ["a1", "a4", "a2", "a3"]


def test_a_client_that_joins_one_query_twice_takes_one_place() -> None:
    waiting = lines(most=3)
    fill(waiting, "a1", "a1", "a2")
    assert (waiting.length(A), waiting.has_room(A)) == (2, True)
    assert served(waiting) == ["a1", "a2"]


def test_a_query_that_leaves_leaves_every_line() -> None:
    waiting = lines()
    fill(waiting, "a1")
    waiting.join(B, "a1")
    waiting.leave("a1")
    assert (len(waiting.queries), waiting.clients) == (0, 0)
    waiting.leave("a1")


def test_a_client_has_no_room_past_its_share_and_others_have() -> None:
    waiting = lines(most_of_client=2)
    fill(waiting, "a1", "a2")
    assert (waiting.is_full(A), waiting.has_room(A), waiting.has_room(B)) == (True, False, True)


def test_the_service_s_own_work_has_no_share() -> None:
    waiting = lines(most_of_client=1)
    waiting.join(None, "first")
    assert waiting.has_room(None)


def test_when_all_places_are_taken_the_longest_line_loses_its_newest_query() -> None:
    waiting = lines(most=5)
    fill(waiting, "a1", "a2", "a3", "b1", "b2")
    assert waiting.has_room(C)
    assert waiting.join(C, "c1") == "a3"
    assert served(waiting) == ["a1", "b1", "c1", "a2", "b2"]


def test_no_query_is_lost_for_a_client_whose_line_would_be_as_long() -> None:
    waiting = lines(most=3)
    fill(waiting, "a1", "a2", "b1")
    assert (waiting.has_room(A), waiting.has_room(B), waiting.has_room(C)) == (False, False, True)


def test_a_query_that_loses_one_of_its_lines_waits_on_in_the_other() -> None:
    waiting = lines(most=4)
    fill(waiting, "a1", "a2", "a3")
    waiting.join(B, "a3")
    assert waiting.join(C, "c1") is None
    assert served(waiting) == ["a1", "a3", "c1", "a2"]


@table("seed", range(5))
def test_a_flood_of_clients_never_takes_more_than_all_places(seed: int) -> None:
    dice, waiting = random.Random(seed), FairQueue[int](200, 20)
    stands: set[int] = set()
    for query in range(5_000):
        client = f"network {dice.randrange(300)}"
        if waiting.has_room(client):
            stands |= {query}
            stands -= {waiting.join(client, query)}
        if dice.random() < 0.3 and len(waiting.queries):
            turn = next(waiting.turns())
            waiting.serve(*turn)
            stands.discard(turn[1])
        assert len(waiting.queries) == len(stands) <= 200
        assert waiting.clients <= 200


def test_a_flood_of_ten_thousand_networks_is_bounded_and_one_more_client_has_its_turn() -> None:
    waiting = FairQueue[int](1_000, 100)
    for query in range(100):
        waiting.join("first", query)
    for query in range(100, 10_100):
        client = f"network {query}"
        if waiting.has_room(client):
            waiting.join(client, query)
    # The flood took the places of the longest line, down to one. No network of the flood has two.
    assert len(waiting.queries) == waiting.clients == 1_000
    assert next(waiting.turns()) == ("first", 0)


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.booleans()), max_size=200))
def test_between_two_turns_of_a_client_no_other_client_has_two(steps: list[tuple[str, bool]]) -> None:
    waiting, query, turns = FairQueue[int](50, 10), 0, list[str]()
    for client, serves in steps:
        if serves and len(waiting.queries):
            turn = next(waiting.turns())
            waiting.serve(*turn)
            turns.append(str(turn[0]))
        elif waiting.has_room(client):
            waiting.join(client, query := query + 1)
    # Those who wait at the end wait since their last turn at the longest, so the next turns are all different.
    following = [client for client, _ in islice(waiting.turns(), 3)]
    assert len(set(following)) == len(following) == waiting.clients
