"""Requests by client: shares and their bounds, and no address."""

from __future__ import annotations

import gc

import pytest

from doi_proxy.features.status.clients import (
    MAX_CLIENTS,
    MAX_WAITING,
    STEP,
    TABLES,
    ClientCounts,
    ClientShares,
    measure_shares,
)
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


def test_without_requests_there_are_no_shares() -> None:
    assert make_counts(Clock()).shares() == ClientShares(0, 0, 0, None)


@pytest.mark.parametrize(
    ("counts", "half", "nine_tenths", "largest"),
    [
        ([10], 1, 1, 1.0),
        ([5, 5], 1, 2, 0.5),
        ([8, 1, 1], 1, 2, 0.8),
        ([1] * 10, 5, 9, 0.1),
        ([40, 30, 20, 10], 2, 3, 0.4),
    ],
)
def test_the_busiest_clients_are_counted_first(counts: list[int], half: int, nine_tenths: int, largest: float) -> None:
    shares = measure_shares(dict(enumerate(counts)))
    assert shares == ClientShares(len(counts), half, nine_tenths, largest)


def test_addresses_of_one_network_are_one_client() -> None:
    counts = make_counts(Clock())
    counts.count_client("192.0.2.1", 3)
    counts.count_client("192.0.2.2", 1)
    counts.count_client("198.51.100.1", 1)
    assert counts.shares() == ClientShares(2, 1, 2, 0.8)


def test_an_hour_later_a_client_is_forgotten() -> None:
    clock = Clock()
    counts = make_counts(clock)
    counts.count_client("192.0.2.1", 1)
    counts.refresh()
    clock.advance(STEP * TABLES)
    counts.count_client("198.51.100.1", 1)
    assert counts.shares().clients == 1


def test_a_clock_that_is_set_back_leaves_no_table_of_the_future() -> None:
    clock = Clock()
    counts = make_counts(clock)
    counts.count_client("192.0.2.1", 1)
    counts.refresh()
    clock.advance(-STEP * TABLES)
    counts.refresh()
    assert counts.shares().clients == 0


def test_clients_beyond_the_bound_are_counted_together() -> None:
    counts = ClientCounts(Numbered, Clock())
    for number in range(1, MAX_CLIENTS + 501):
        counts.count_client(f"{number}", 1)
    shares = counts.shares()
    assert shares.clients == MAX_CLIENTS + 1
    assert shares.largest == pytest.approx(500 / (MAX_CLIENTS + 500))


def test_no_address_is_kept() -> None:
    counts = make_counts(Clock())
    for number in range(MAX_WAITING + 1):
        counts.count_client(f"192.0.2.{number}", 1)
    texts = [one for holder in gc.get_referents(counts.__dict__) for one in gc.get_referents(holder)]
    assert not [one for one in texts if isinstance(one, str) and one.startswith("192.0.2")]
