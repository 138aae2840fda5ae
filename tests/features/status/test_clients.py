"""Requests by client: their number and the busiest, their bounds, and no address."""

from __future__ import annotations

import gc

from doi_proxy.features.status.clients import ClientCounts
from tests.clock import Clock


def network_of(address: str) -> str:
    return address.rpartition(".")[0]


class Numbered(str):
    """A network whose hash is its number: those of 10,500 texts have an equal pair in one start of a hundred."""

    __slots__ = ()

    def __hash__(self) -> int:
        return int(self)


def make_counts(clock: Clock) -> ClientCounts:
    return ClientCounts(network_of, clock)


def test_addresses_of_one_network_are_one_client() -> None:
    counts = make_counts(Clock())
    assert counts.read() == (0, None)
    counts.count_client("192.0.2.1", 3)
    counts.count_client("192.0.2.2", 1)
    counts.count_client("198.51.100.1", 1)
    assert counts.read() == (2, 0.8)


def test_a_client_is_forgotten_after_half_an_hour_to_an_hour() -> None:
    clock = Clock()
    counts = make_counts(clock)
    seen = list[int]()
    for _ in range(4):
        counts.count_client("192.0.2.1" if not seen else "198.51.100.1", 1)
        seen.append(counts.read()[0])
        clock.advance(1_800)
    assert seen == [1, 2, 1, 1]


def test_after_a_long_sleep_or_a_clock_that_was_set_back_nothing_is_of_the_last_hour() -> None:
    for seconds in (7_200, -7_200):
        clock = Clock()
        counts = make_counts(clock)
        counts.count_client("192.0.2.1", 1)
        counts.refresh()
        clock.advance(seconds)
        assert counts.read() == (0, None)


def test_clients_beyond_the_bound_are_counted_together() -> None:
    counts = ClientCounts(Numbered, Clock())
    for number in range(1, 10_501):
        counts.count_client(f"{number}", 1)
    assert counts.read() == (10_001, 500 / 10_500)


def test_no_address_is_kept() -> None:
    counts = make_counts(Clock())
    for number in range(2_001):
        counts.count_client(f"192.0.2.{number}", 1)
    texts = [one for holder in gc.get_referents(counts.__dict__) for one in gc.get_referents(holder)]
    assert not [one for one in texts if isinstance(one, str) and one.startswith("192.0.2")]
