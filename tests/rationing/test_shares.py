"""Shares in a tree of networks."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from doi_proxy.rationing import SharedPlaces, ShareTree, find_accounts
from tests.table import table

#: Clients of one /20 of IPv4, and one of another.
CAMPUS, NEIGHBOUR, OTHER = "192.0.16.0/24", "192.0.31.0/24", "192.0.32.0/24"


def tree_of(*clients: str | None) -> ShareTree[int]:
    """The items 0, 1, 2 … of these clients."""
    tree = ShareTree[int]()
    for item, client in enumerate(clients):
        tree.add(client, item)
    return tree


@table(
    ("client", "lengths"),
    [
        ("192.0.2.0/24", [20]),
        ("192.0.2.7/32", [20]),
        ("192.0.0.0/20", []),
        ("10.0.0.0/8", []),
        ("2001:db8::/64", [32, 48, 56]),
        ("2001:db8::/48", [32]),
        ("2001:db8::1/128", [32, 48, 56, 64]),
        ("unknown", []),
        (None, []),
    ],
)
def test_the_networks_above_a_client_are_wider_than_it(client: str | None, lengths: list[int]) -> None:
    *above, last = find_accounts(client)
    assert ([key[1] for key in above if isinstance(key, tuple)], last) == (lengths, client)


@table(
    ("one", "other", "shared"),
    [
        (CAMPUS, NEIGHBOUR, 1),
        (CAMPUS, OTHER, 0),
        ("2001:db8:1:2::/64", "2001:db8:1:3::/64", 3),
        ("2001:db8:1:2::/64", "2001:db8:1:200::/64", 2),
        ("2001:db8:1:2::/64", "2001:db8:2:2::/64", 1),
        ("2001:db8:1:2::/64", "2001:db9:1:2::/64", 0),
    ],
)
def test_near_clients_share_networks(one: str, other: str, shared: int) -> None:
    assert len(set(find_accounts(one)) & set(find_accounts(other))) == shared


def test_networks_take_turns_and_in_each_its_clients() -> None:
    tree, order = tree_of(CAMPUS, CAMPUS, NEIGHBOUR, OTHER, OTHER), []
    while tree.clients:
        client, item = next(tree.turns())
        tree.end_turn(client)
        tree.remove(client, item)
        order.append(item)
    assert order == [0, 3, 2, 4, 1]


@table(
    ("clients", "newcomer", "expected"),
    [
        # Sixteen networks of one customer have more than one client with two items.
        ([f"2001:db8:1:{n:x}::/64" for n in range(16)] + [OTHER, OTHER], CAMPUS, ("2001:db8:1:0::/64", 16)),
        ([CAMPUS, CAMPUS, OTHER], NEIGHBOUR, (CAMPUS, 2)),
        ([CAMPUS, OTHER], NEIGHBOUR, (OTHER, 0)),
        ([CAMPUS, OTHER], OTHER, (CAMPUS, 0)),
        ([CAMPUS, CAMPUS, OTHER], CAMPUS, None),
        ([CAMPUS], CAMPUS, None),
        ([None, None], CAMPUS, (None, 2)),
        ([], CAMPUS, None),
    ],
)
def test_the_fullest_share_is_another_clients(
    clients: list[str | None], newcomer: str, expected: tuple[str | None, int] | None
) -> None:
    share = tree_of(*clients).find_fullest(newcomer)
    assert (None if share is None else (share.client, share.lead)) == expected


@pytest.mark.parametrize("seed", range(3))
def test_what_ends_leaves_nothing_behind_and_sizes_are_exact(seed: int) -> None:
    dice, tree, held = random.Random(seed), ShareTree[int](), list[tuple[str, int]]()
    for item in range(1_000):
        client = f"10.0.{dice.randrange(64)}.0/24"
        tree.add(client, item)
        held.append((client, item))
        if dice.random() < 0.6:
            tree.remove(*held.pop(dice.randrange(len(held))))
        share = tree.find_fullest("unknown")
        if item % 50 or share is None:
            continue
        sizes = Counter(client for client, _ in held)
        assert share.lead == max(Counter(find_accounts(client)[0] for client, _ in held).values())
        assert len(share.items) == sizes[share.client or ""]
    for client, item in held:
        tree.remove(client, item)
    assert (tree.clients, tree.find_fullest(None), [*tree.turns()]) == (0, None, [])


class Place:
    """A holder of a place. `name` is its own."""

    def __init__(self, name: str, *, speed: float = 1.0, is_idle: bool = False, is_overdue: bool = False) -> None:
        self.name, self.is_idle, self.is_overdue, self._speed = name, is_idle, is_overdue, speed

    def speed(self) -> float:
        return self._speed

    def give_way(self) -> None:
        self.name += " left"


@table(
    ("holders", "expected"),
    [
        # Of two that are idle, the slower one. A client's own do not give way to it.
        ([(CAMPUS, Place("a", is_idle=True)), (CAMPUS, Place("b", speed=0.5, is_idle=True))], ["a", "b left"]),
        ([(OTHER, Place("a", is_idle=True)), (CAMPUS, Place("b"))], ["a", "b"]),
        # Nothing is idle: one of the client that has two more than the newcomer, or one more that is overdue.
        ([(CAMPUS, Place("a", speed=0.5)), (CAMPUS, Place("b"))], ["a left", "b"]),
        ([(CAMPUS, Place("a"))], ["a"]),
        ([(CAMPUS, Place("a", is_overdue=True))], ["a left"]),
        ([(OTHER, Place("a")), (OTHER, Place("b"))], ["a", "b"]),
    ],
)
def test_a_newcomer_takes_the_place_of_who_is_idle_or_has_most(
    holders: list[tuple[str, Place]], expected: list[str]
) -> None:
    places = SharedPlaces[Place](len(holders), least_lead=2)
    assert all(places.enter(*holder) for holder in holders)
    has_entered = places.enter(OTHER, Place("newcomer"))
    assert [holder.name for _, holder in holders] == expected
    assert has_entered == any("left" in name for name in expected)
    assert len(places) == len(holders)
    for _, holder in holders:
        places.leave(holder)
        places.leave(holder)
    assert len(places) == has_entered
