"""A sample of names is asked at two sites of a service. What differs is counted, logged and shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.errors import BudgetSpent
from app.features.native.json_values import write_json_values
from app.features.native.referral import HandleService, Question
from app.features.native.wire.message import Envelope, Header
from app.features.native.wire.response import Response, Values
from app.features.native.wire.site_value import TransportProtocol, encode_site
from app.features.native.wire.value import Permission, Value
from app.features.native.witness import INTERVAL, NAMES, Witness, WitnessResult, find_difference
from app.features.status.events import Event, add_event
from tests.clock import Clock
from tests.features.native.clients import open_exchange
from tests.features.native.keys import dsa_key
from tests.features.native.server import EVERY_NAME, HandleServer
from tests.web.proxy import Proxy, running

pytestmark = pytest.mark.anyio
NAME = "10.5072/x"


@asynccontextmanager
async def _two_sites(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[Proxy, HandleServer, HandleServer]]:
    async with HandleServer() as primary, HandleServer(key=dsa_key(), serial=2) as mirror:
        values = [Value(number, b"HS_SITE", encode_site(one.site())) for number, one in enumerate((primary, mirror), 1)]
        file = tmp_path / "sites.json"
        file.write_bytes(b'{"values":' + write_json_values(values) + b"}")
        async with running(upstream_url=f"hdl:{file}", status_access="public", **settings) as proxy:
            yield proxy, primary, mirror


async def _see(proxy: Proxy) -> Any:
    """The status, once it has the result of a witness."""
    async with asyncio.timeout(20):
        while True:
            await asyncio.sleep(0.02)
            status = (await proxy.get("/status?format=json")).json
            if status["witnesses"]:
                return status


async def test_two_sites_that_agree_are_counted(tmp_path: Path) -> None:
    async with _two_sites(tmp_path) as (proxy, primary, mirror):
        for server in (primary, mirror):
            server.put(NAME, url="https://same.example/")
        assert (await proxy.get(f"/{NAME}")).status == 302
        status = await _see(proxy)
        assert status["witnesses"] == {"agree": 1} and (primary.queries(), mirror.queries()) == (1, 1)
        assert "differ" not in [event["kind"] for event in status["events"]]
        assert 'upstream_witnesses_total{result="agree",upstream="1"} 1.0' in (await proxy.get("/metrics")).text


@pytest.mark.parametrize("level", [2, 3])
async def test_sites_that_differ_are_shown_and_logged_without_the_name_if_no_log_may_have_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    async with _two_sites(tmp_path, privacy_level=level) as (proxy, primary, mirror):
        primary.put(NAME, url="https://one.example/")
        mirror.put(NAME, url="https://two.example/")
        assert (await proxy.get(f"/{NAME}")).status == 302
        status = await _see(proxy)
        assert status["witnesses"] == {"differ": 1}
        (event,) = [one for one in status["events"] if one["kind"] == "differ"]
        assert event["detail"] == "127.0.0.1 and 127.0.0.1" and NAME not in json.dumps(status)
        page = (await proxy.get("/status?format=html")).text
        assert "127.0.0.1 and 127.0.0.1 answer differently (1)" in page
        assert "Names asked at two sites of a service" in page
    (line,) = [one.getMessage() for one in caplog.records if "two sites" in one.getMessage()]
    assert line.endswith(": values 1") and (NAME in line) == (level == 2)


async def test_a_second_site_that_does_not_know_the_prefix_is_no_witness(tmp_path: Path) -> None:
    async with _two_sites(tmp_path) as (proxy, primary, mirror):
        primary.put(NAME, url="https://one.example/")
        mirror.lie(EVERY_NAME, "not-responsible")
        assert (await proxy.get(f"/{NAME}")).status == 302
        assert (await _see(proxy))["witnesses"] == {"no-answer": 1}


async def test_no_one_waits_for_a_second_site_that_is_slow(tmp_path: Path) -> None:
    async with _two_sites(tmp_path) as (proxy, primary, mirror):
        for name in (NAME, "10.5072/y"):
            primary.put(name, url="https://one.example/")
        mirror.hold(NAME)
        async with asyncio.timeout(1.0):
            for name in (NAME, "10.5072/y"):
                assert (await proxy.get(f"/{name}")).status == 302
        await mirror.arrived(NAME)


async def test_one_server_that_the_operator_named_has_no_witness() -> None:
    async with HandleServer() as server:
        server.put(NAME, url="https://one.example/")
        async with running(upstream_url=server.url, status_access="public") as proxy:
            assert (await proxy.get(f"/{NAME}")).status == 302
            assert server.queries() == 1 and (await proxy.get("/status?format=json")).json["witnesses"] == {}


class _Bench:
    """Two sites at two addresses, and a witness whose clock stands still."""

    def __init__(self, *, admits: bool = True) -> None:
        self.clock = Clock()
        self.results: list[tuple[WitnessResult, str]] = []
        self.admits = admits
        self.witness = Witness(self._admit, self.clock, self._record, shows_names=False)

    @asynccontextmanager
    async def _admit(self) -> AsyncIterator[None]:
        if not self.admits:
            raise BudgetSpent
        yield

    def _record(self, result: WitnessResult, servers: str) -> None:
        self.results.append((result, servers))

    async def ask(self, service: HandleService, names: int) -> None:
        """Ask about so many names."""
        client = open_exchange((TransportProtocol.TCP,), witness=self.witness)
        for number in range(names):
            await client(service, Question(b"10.5072/%d" % number))
            for _ in range(100_000):
                if not self.witness.is_asking:
                    break
                await asyncio.sleep(0)
        await client.aclose()


@asynccontextmanager
async def _servers(*hosts: str, keys: Sequence[Any]) -> AsyncIterator[tuple[HandleService, list[HandleServer]]]:
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(HandleServer(host=host, key=key, serial=number))
            for number, (host, key) in enumerate(zip(hosts, keys, strict=True))
        ]
        yield HandleService(tuple(server.site() for server in servers), is_verified=True), servers


async def test_a_hundredth_of_the_names_and_one_a_minute_is_asked_twice() -> None:
    bench = _Bench()
    async with _servers("127.0.0.1", "127.0.0.2", keys=(None, None)) as (service, servers):
        await bench.ask(service, 2 * NAMES)
        assert len(bench.results) == 1 and sum(server.queries() for server in servers) == 2 * NAMES + 1
        bench.clock.advance(INTERVAL)
        await bench.ask(service, 1)
        assert [result for result, _ in bench.results] == ["agree", "agree"]
        bench.clock.advance(INTERVAL)
        await bench.ask(service, NAMES - 2)
        assert len(bench.results) == 2


async def test_two_addresses_of_one_server_are_one_witness() -> None:
    bench = _Bench()
    async with _servers("127.0.0.1", "::1", keys=(None, None)) as (service, _):
        await bench.ask(service, 1)
    assert not bench.results


async def test_a_spent_budget_counts_nothing() -> None:
    bench = _Bench(admits=False)
    async with _servers("127.0.0.1", "127.0.0.2", keys=(None, None)) as (service, servers):
        await bench.ask(service, 1)
        assert not bench.results and sum(server.queries() for server in servers) == 1


async def test_a_query_to_the_second_site_ends_with_the_client() -> None:
    bench = _Bench()
    async with _servers("127.0.0.1", "127.0.0.2", keys=(None, None)) as (service, servers):
        servers[0].hold("10.5072/0")
        client = open_exchange((TransportProtocol.TCP,), witness=bench.witness)
        await client(service, Question(b"10.5072/0"))
        await servers[0].arrived("10.5072/0")
        await client.aclose()
        assert not bench.witness.is_asking and not bench.results


def _answer(*values: Value, code: int = 1) -> Response:
    return Response(Envelope(1), Header(1, code), Values(b"10.5072/x", values))


_URL = Value(1, b"URL", b"https://one.example/", timestamp=5)
_MAIL = Value(2, b"EMAIL", b"a@b.example")
_SECRET = Value(300, b"HS_SECKEY", b"x", permissions=Permission.ADMIN_READ)


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        (_answer(_URL, _MAIL), _answer(_MAIL, replace(_URL, timestamp=9, type=b"url")), None),
        (_answer(_URL, _SECRET), _answer(_URL), None),
        (_answer(_URL, _MAIL), _answer(_MAIL), "values 1"),
        (_answer(_URL), _answer(replace(_URL, ttl=60)), "values 1"),
        (_answer(_URL), _answer(replace(_URL, index=2)), "values 1, 2"),
        (_answer(_URL), _answer(code=100), "response codes 1 and 100"),
        (_answer(code=100), _answer(code=100), None),
    ],
)
def test_index_type_data_and_ttl_are_compared(first: Response, second: Response, difference: str | None) -> None:
    assert find_difference(first, second) == difference


def test_servers_that_differ_push_no_other_event_out() -> None:
    events = [Event("outage", 0, 9, "doi.org")]
    for number in range(1, 100):
        events = add_event(events, Event("differ", number * 60, detail=f"192.0.2.1 and 192.0.2.{number % 20}"))
    assert [event.kind for event in events] == ["outage"] + 5 * ["differ"]
    again = add_event(events, Event("differ", 9_000, detail=events[1].detail))
    assert len(again) == 6 and (again[1].count, again[1].until) == (events[1].count + 1, 9_000)
