"""Clients share the upstream: what one of them asks hurts no other one, and its 429 says what to do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.constants import BYPASSES, MOST_WAITING
from tests.server.served import NAME, served
from tests.table import table
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

CROWD, OTHER = "192.0.2.7", "198.51.100.9"
_MAX_WAIT = 10.0
#: Items of a structured field that is a list of strings with integer parameters (RFC 9651, sections 3.1 and 3.3).
_LIMIT = re.compile(r'"([a-z]+)"((?:;[a-z]+=[0-9]+)+)')


def limit(got: Reply, field: str) -> tuple[str, dict[str, int]]:
    """The name and the parameters of a RateLimit field."""
    item = _LIMIT.fullmatch(got[field] or "")
    assert item is not None, got[field]
    pairs = (pair.split("=") for pair in item[2][1:].split(";"))
    return item[1], {key: int(value) for key, value in pairs}


class Crowd:
    """Requests of one client for names that the upstream does not answer until `end`: six sent, five that wait."""

    SENT, WAITING = 6, 5

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.names = [proxy.name() for _ in range(self.SENT + self.WAITING)]
        self.requests: list[asyncio.Task[Reply]] = []
        for name in self.names:
            proxy.upstream.put(name, url="http://example.org/")
            proxy.upstream.hold(name)

    async def come(self) -> None:
        for number, name in enumerate(self.names):
            request = self.proxy.get(f"/api/handles/{name}", client=CROWD)
            self.requests.append(asyncio.create_task(request))
            if number < self.SENT:
                await self.proxy.upstream.arrived(name)
        async with asyncio.timeout(_MAX_WAIT):
            # A waiting query has no event.
            while await self._waiting() < self.WAITING:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def _waiting(self) -> float:
        found = re.search("^doi_proxy_upstream_waiting (.*)$", (await self.proxy.get("/metrics")).text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    async def end(self) -> list[int]:
        for name in self.names:
            self.proxy.upstream.release(name)
        return [got.status for got in await asyncio.gather(*self.requests)]


@pytest.fixture
async def crowd(small: Proxy) -> Crowd:
    found = Crowd(small)
    await found.come()
    return found


@pytest.fixture
async def small() -> AsyncIterator[Proxy]:
    """A proxy with eight places upstream, where one client may have five questions waiting."""
    async with Proxy(**{"upstream_max_concurrency": 8, MOST_WAITING: 5}) as proxy:
        yield proxy


async def test_while_one_client_holds_every_place_it_may_another_is_answered(small: Proxy, crowd: Crowd) -> None:
    for number in range(5):
        name = f"10.{6_000 + number}/x"
        small.upstream.put(name, url="http://example.org/")
        assert (await small.get(f"/{name}", client=OTHER)).status == 302
    assert (await crowd.end())[: Crowd.SENT] == [200] * Crowd.SENT


async def test_past_its_share_a_client_gets_429_with_when_and_why_and_another_does_not(
    small: Proxy, crowd: Crowd
) -> None:
    api = await small.get(f"/api/handles/{small.name()}", client=CROWD)
    page = await small.get(f"/{small.name()}", client=CROWD)
    for got in (api, page):
        assert (got.status, got["retry-after"], got["cache-control"]) == (429, "1", "no-store")
        assert limit(got, "ratelimit-policy") == ("share", {"q": 5, "w": 5})
        assert limit(got, "ratelimit") == ("share", {"r": 0, "t": 1})
        assert got["proxy-status"] == 'doi-proxy; error=connection_limit_reached; details="share-spent"'
    assert api.json["responseCode"] == 2
    assert (await small.get("/10.6000/x", client=OTHER)).status == 404
    metrics = (await small.get("/metrics")).text
    assert 'doi_proxy_client_refusals_total{reason="share"} 2.0' in metrics
    assert "doi_proxy_upstream_clients_waiting 1.0" in metrics
    assert CROWD.rpartition(".")[0] not in metrics
    await crowd.end()


async def test_addresses_of_one_network_are_one_client(small: Proxy, crowd: Crowd) -> None:
    assert (await small.get(f"/{small.name()}", client="192.0.2.200")).status == 429
    await crowd.end()


async def test_what_is_cached_is_answered_past_the_share(small: Proxy, crowd: Crowd) -> None:
    small.upstream.put("10.6000/x", url="http://example.org/")
    assert (await small.get("/10.6000/x", client=OTHER)).status == 302
    assert (await small.get("/10.6000/x", client=CROWD)).status == 302
    await crowd.end()


async def test_a_which_ra_request_of_a_hundred_names_does_not_keep_another_waiting() -> None:
    async with Proxy(upstream_max_concurrency=16) as proxy:
        names = [f"10.{n}/x" for n in range(2000, 2100)]
        for name in names:
            proxy.upstream.hold(name)
        crowd = asyncio.create_task(proxy.get(f"/ra/{','.join(names)}", client=CROWD))
        await proxy.upstream.arrived(names[7])
        assert (await proxy.get("/ra/10.66", client=OTHER)).json == [{"DOI": "10.66", "status": "DOI does not exist"}]
        assert proxy.upstream.queries() == 9
        for name in names:
            proxy.upstream.release(name)
        assert len((await crowd).json) == 100


class TestBypass:
    async def test_auth_is_counted_by_network(self) -> None:
        async with Proxy(**{BYPASSES: 3}) as proxy:
            name = proxy.name()
            statuses = [
                (await proxy.get(f"/api/handles/{name}?auth", client=f"2001:db8::{host}")).status
                for host in range(1, 6)
            ]
            assert statuses == [404, 404, 404, 429, 429]
            refused = await proxy.get(f"/{name}?auth", client="2001:db8::1")
            assert limit(refused, "ratelimit-policy") == ("bypass", {"q": 3, "w": 60})
            assert limit(refused, "ratelimit") == ("bypass", {"r": 0, "t": 20})
            assert (await proxy.get(f"/{name}?auth", client="2001:db8:0:1::1")).status == 404


class TestRate:
    @pytest.mark.parametrize("target", ["/10.5555/x", "/api/handles/10.5555/x", "/ra/10.5555", "/", "/no-doi"])
    async def test_a_client_that_is_too_fast_gets_429_and_another_does_not(self, target: str) -> None:
        async with Proxy(client_rate=1, client_burst=2) as proxy:
            assert [(await proxy.get(target)).status == 429 for _ in range(3)] == [False, False, True]
            refused = await proxy.get(target)
            assert limit(refused, "ratelimit-policy") == ("rate", {"q": 2, "w": 2})
            assert (await proxy.get(target, client=OTHER)).status != 429
            proxy.clock.advance(1)
            assert (await proxy.get(target)).status != 429

    async def test_health_and_metrics_are_not_counted(self) -> None:
        async with Proxy(client_rate=0.001, client_burst=1) as proxy:
            for path in ("/healthz", "/metrics", "/healthz", "/metrics"):
                assert (await proxy.get(path)).status == 200

    async def test_answers_from_memory_are_counted(self) -> None:
        async with Proxy(client_rate=1, client_burst=2) as proxy:
            proxy.upstream.put("10.5555/x", url="http://example.org/")
            assert [(await proxy.get("/10.5555/x")).status for _ in range(3)] == [302, 302, 429]


class TestLists:
    async def test_a_network_on_the_deny_list_is_answered_403(self, tmp_path: Path) -> None:
        async with Proxy(client_deny_file=_file(tmp_path, "192.0.2.0/28 # a crawler")) as proxy:
            denied = await proxy.get("/api/handles/10.5555/x", client="192.0.2.7")
            assert (denied.status, denied.json["responseCode"]) == (403, 4)
            assert (await proxy.get("/10.5555/x", client="::ffff:192.0.2.7")).status == 403
            assert (await proxy.get("/healthz", client="192.0.2.7")).status == 200
            assert (await proxy.get("/10.5555/x", client="192.0.2.16")).status == 404

    @table(
        ("peer", "forwarded", "status"),
        [
            ("127.0.0.2", "198.51.100.9", 403),
            ("127.0.0.2", "203.0.113.1, 198.51.100.9", 403),
            ("127.0.0.2", "198.51.100.9, 127.0.0.2", 403),
            # The client itself sent everything before the last address.
            ("127.0.0.2", "198.51.100.9, 203.0.113.1", 302),
            # A host that is not a trusted proxy is the client, whatever it sends.
            ("127.0.0.1", "198.51.100.9", 302),
            ("127.0.0.3", "203.0.113.1", 403),
        ],
    )
    async def test_a_client_is_the_last_address_that_no_trusted_proxy_has(
        self, tmp_path: Path, peer: str, forwarded: str, status: int
    ) -> None:
        denied = _file(tmp_path, "198.51.100.9/32\n127.0.0.3/32")
        async with served(trusted_proxies="127.0.0.2", client_deny_file=denied) as server:
            await server.put(NAME)
            head = f"GET /{NAME} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {forwarded}\r\nConnection: close\r\n\r\n"
            assert (await server.exchange(head.encode(), client=peer)).startswith(b"HTTP/1.1 %d " % status)


def _file(folder: Path, text: str) -> Path:
    path = folder / "networks.txt"
    path.write_text(text, "utf-8")
    return path
