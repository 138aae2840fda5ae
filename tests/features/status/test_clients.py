"""Requests by client: shares and their bounds, and no address."""

from __future__ import annotations

import gc

import pytest

from doi_proxy.features.status.clients import (
    MAX_CLIENTS,
    MAX_PREFIXES,
    MAX_WAITING,
    MOST_HIDDEN,
    STEP,
    TABLES,
    ClientCounts,
    ClientShares,
    PrefixCounts,
    measure_shares,
)
from tests.clock import Clock
from tests.web.proxy import Proxy


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


# --- The prefixes of today: those of more than five networks, bounded, gone with the day, for operators alone --------


def make_counts_prefixes(clock: Clock) -> PrefixCounts:
    return PrefixCounts(network_of, clock)


def request(counts: PrefixCounts, prefix: str, networks: int, status: int = 302) -> None:
    for number in range(networks):
        for host in (1, 2):
            counts.count_path(f"192.0.{number}.{host}", f"/{prefix}/secret-{host}".encode(), status, 1)


def test_a_prefix_is_shown_if_more_than_five_networks_requested_it() -> None:
    counts = make_counts_prefixes(Clock())
    request(counts, "10.1000", MOST_HIDDEN)
    assert counts.top()["asked"] == []
    request(counts, "10.1000", MOST_HIDDEN + 1, 404)
    assert counts.top() == {"asked": [("10.1000", 22)], "missing": [("10.1000", 12)], "unverified": []}


def test_nothing_is_left_of_the_day_before() -> None:
    clock = Clock()
    counts = make_counts_prefixes(clock)
    request(counts, "10.1000", 9)
    counts.refresh()
    clock.advance(86_400)
    assert counts.top()["asked"] == []


def test_a_flood_of_prefixes_stays_within_the_limit_and_hides_no_busy_one() -> None:
    counts = make_counts_prefixes(Clock())
    request(counts, "10.1000", 9)
    for number in range(5 * MAX_PREFIXES):
        counts.count_path("192.0.2.1", f"/10.{10_000 + number}/x".encode(), 302, 1)
    assert counts.top()["asked"] == [("10.1000", 18)]
    assert max(len(table) for table in counts._tables.values()) <= MAX_PREFIXES


@pytest.mark.parametrize("path", [b"/", b"/status", b"/10.1000", b"/10.x/y", b"/20.500/x", b"/10." + b"1" * 99 + b"/x"])
def test_other_paths_are_not_counted(path: bytes) -> None:
    counts = make_counts_prefixes(Clock())
    counts.count_path("192.0.2.1", path, 302, 1)
    counts.refresh()
    assert not any(counts._tables.values())


@pytest.mark.anyio
async def test_strangers_do_not_see_them_though_everyone_sees_the_page() -> None:
    # Of prepared answers, one in sixteen is counted.
    async with Proxy(status_networks="127.0.0.1, 0.0.0.0/0, ::/0", express_lane=False) as proxy:
        proxy.upstream.put("10.5555/known", url="http://here.example/")
        for number in range(9):
            await proxy.ask("GET", "/10.5555/known", client=f"192.0.{number}.1")
            await proxy.ask("GET", "/api/handles/10.5555/absent", client=f"192.0.{number}.1")
        inside = await proxy.ask("GET", "/status", client="127.0.0.1")
        assert inside.json["prefixes"]["asked"][0] == {"prefix": "10.5555", "names": 18}
        assert inside.json["prefixes"]["missing"] == [{"prefix": "10.5555", "names": 9}]
        assert "10.5555" in (await proxy.ask("GET", "/status", client="127.0.0.1", accept="text/html")).text
        for accept in ("text/html", "*/*"):
            assert "10.5555" not in (await proxy.ask("GET", "/status", client="192.0.2.7", accept=accept)).text


@pytest.mark.anyio
async def test_the_highest_privacy_level_counts_none() -> None:
    async with Proxy(status_networks="0.0.0.0/0, ::/0", privacy_level=3) as proxy:
        assert (await proxy.ask("GET", "/status", client="127.0.0.1")).json["prefixes"] is None
