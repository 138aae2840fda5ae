"""The prefixes of today: those of more than five networks, bounded, gone with the day, for operators alone."""

from __future__ import annotations

import pytest

from doi_proxy.features.status.clients import MAX_PREFIXES, MOST_HIDDEN, PrefixCounts
from tests.clock import Clock
from tests.web.proxy import Proxy


def network_of(address: str) -> str:
    return address.rpartition(".")[0]


def make_counts(clock: Clock) -> PrefixCounts:
    return PrefixCounts(network_of, clock)


def request(counts: PrefixCounts, prefix: str, networks: int, status: int = 302) -> None:
    for number in range(networks):
        for host in (1, 2):
            counts.count_path(f"192.0.{number}.{host}", f"/{prefix}/secret-{host}".encode(), status, 1)


def test_a_prefix_is_shown_if_more_than_five_networks_requested_it() -> None:
    counts = make_counts(Clock())
    request(counts, "10.1000", MOST_HIDDEN)
    assert counts.top()["asked"] == []
    request(counts, "10.1000", MOST_HIDDEN + 1, 404)
    assert counts.top() == {"asked": [("10.1000", 22)], "missing": [("10.1000", 12)], "unverified": []}


def test_nothing_is_left_of_the_day_before() -> None:
    clock = Clock()
    counts = make_counts(clock)
    request(counts, "10.1000", 9)
    counts.refresh()
    clock.advance(86_400)
    assert counts.top()["asked"] == []


def test_a_flood_of_prefixes_stays_within_the_limit_and_hides_no_busy_one() -> None:
    counts = make_counts(Clock())
    request(counts, "10.1000", 9)
    for number in range(5 * MAX_PREFIXES):
        counts.count_path("192.0.2.1", f"/10.{10_000 + number}/x".encode(), 302, 1)
    assert counts.top()["asked"] == [("10.1000", 18)]
    assert max(len(table) for table in counts._tables.values()) <= MAX_PREFIXES


@pytest.mark.parametrize("path", [b"/", b"/status", b"/10.1000", b"/10.x/y", b"/20.500/x", b"/10." + b"1" * 99 + b"/x"])
def test_other_paths_are_not_counted(path: bytes) -> None:
    counts = make_counts(Clock())
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
