"""A server that the operator named: its addresses, and what its site information can change."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import UnprovenAnswer, UpstreamUnreachable
from doi_proxy.features.native import direct
from doi_proxy.features.native.direct import DirectLimits, DirectServer, NamedServer
from doi_proxy.features.native.opening import QueryTokens, open_native
from doi_proxy.networks import AllowedAddresses
from handle_protocol.errors import MalformedMessage, ServerUnreachable
from handle_protocol.referral import HandleService, Question, ResponseCode
from handle_protocol.site import ServerHealth, rank_candidates
from handle_protocol.wire.message import AnswerText, Envelope, Header, OpCode, Response
from handle_protocol.wire.site_value import Interface, Purpose, Server, ServiceSite
from tests.clock import Clock
from tests.features.native.clients import HEALTH, HTTPS, TCP, Tokens, client_of, direct_server, open_exchange, query
from tests.handle_protocol.certificates import new_key, serve_tls
from tests.handle_protocol.server import HandleServer

pytestmark = pytest.mark.anyio

QUESTION = Question(b"10.1000/182")
NAMED = [("UDP", 2641), ("TCP", 2641), ("HTTP", 2641)]


def interface(protocol: int, port: int, purpose: int = Purpose.QUERY) -> Interface:
    return Interface(purpose, protocol, port)


def server_at(address: str, *interfaces: Interface) -> Server:
    return Server(1, ip_address(address).packed.rjust(16, b"\0"), b"", interfaces)


def site_of(*servers: Server, serial: int = 7) -> ServiceSite:
    return ServiceSite(serial, servers)


@dataclass
class Seen:
    """A server in memory: what it was asked, and what it says about its site."""

    site: ServiceSite | Exception = field(default_factory=MalformedMessage)
    serial: int = 7
    services: list[HandleService] = field(default_factory=list)
    site_queries: int = 0

    async def ask(self, service: HandleService, question: Question) -> Response:
        """An answer."""
        self.services.append(service)
        header = Header(OpCode.RESOLUTION, 100, site_serial=self.serial)
        return Response(Envelope(7), header, AnswerText(b""))

    async def read_site(self, service: HandleService) -> ServiceSite:
        """The site information."""
        self.site_queries += 1
        if isinstance(self.site, Exception):
            raise self.site
        return self.site

    @property
    def interfaces(self) -> list[tuple[str, int]]:
        """The transports and ports of the last query, in the order in which they are tried."""
        options: dict[str, Any] = {
            "authoritative": True,
            "allow": AllowedAddresses(private=True).find,
            "health": ServerHealth(HEALTH),
            "now": 0.0,
        }
        candidates = rank_candidates(self.services[-1].sites, b"10.1000/182", **options)
        assert {str(one.endpoint.address) for one in candidates} == {"127.0.0.1"}
        return [(one.endpoint.protocol.name, one.endpoint.port) for one in candidates]


def finder_of(seen: Seen, clock: Clock | None = None, tokens: Tokens | None = None, **options: Any) -> DirectServer:
    return DirectServer(
        NamedServer(
            options.get("host", "127.0.0.1"),
            2641,
            DirectLimits(address_lifetime=60.0, site_lifetime=3600.0, timeout=5.0),
            options.get("known", ()),
        ),
        seen.ask,
        seen.read_site,
        clock=clock or Clock(),
        may_ask_again=tokens or Tokens(),
        report=options.get("report", lambda site: None),
    )


async def resolve(finder: DirectServer, times: int = 1) -> None:
    """Resolve, and let the request for site information end."""
    for _ in range(times):
        await finder.resolve(QUESTION)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_the_ports_of_the_site_information_come_first() -> None:
    seen = Seen(site_of(server_at("127.0.0.1", interface(1, 2642), interface(2, 8000), interface(3, 8443))))
    await resolve(finder_of(seen), times=2)
    assert seen.interfaces == [
        ("UDP", 2641),
        ("TCP", 2642),
        ("HTTPS", 8443),
        ("HTTP", 8000),
        ("TCP", 2641),
        ("HTTP", 2641),
    ]
    assert (seen.site_queries, seen.services[-1].sites[0].serial) == (1, 7)


@pytest.mark.parametrize(
    "lie",
    [
        site_of(server_at("127.0.0.2", interface(1, 1)), server_at("10.0.0.1", interface(1, 1))),
        site_of(server_at("127.0.0.1", interface(1, 0), interface(0, 70_000), interface(9, 5), interface(1, 5, 1))),
        site_of(),
        MalformedMessage(),
        ServerUnreachable(),
        TimeoutError(),
    ],
    ids=["other-hosts", "impossible-ports", "no-server", "malformed", "unreachable", "silent"],
)
async def test_site_information_that_lies_or_fails_changes_nothing(lie: ServiceSite | Exception) -> None:
    seen = Seen(lie)
    await resolve(finder_of(seen), times=2)
    assert seen.interfaces == NAMED
    assert seen.site_queries == 1


async def test_the_ports_of_an_only_server_are_used_at_the_address_that_was_named() -> None:
    seen = Seen(site_of(server_at("93.184.216.34", interface(2, 8000))))
    await resolve(finder_of(seen), times=2)
    assert ("HTTP", 8000) in seen.interfaces


async def test_a_secondary_server_that_was_named_is_asked_for_auth() -> None:
    seen = Seen(replace(site_of(server_at("127.0.0.1", interface(2, 8000))), kind=0))
    await resolve(finder_of(seen), times=2)
    assert ("HTTP", 8000) in seen.interfaces


async def test_the_site_information_is_read_again_after_its_lifetime_or_for_another_serial_number() -> None:
    seen, clock = Seen(site_of(server_at("127.0.0.1", interface(2, 8000)))), Clock()
    finder = finder_of(seen, clock)
    await resolve(finder, times=3)
    assert seen.site_queries == 1
    seen.serial = 8
    await resolve(finder)
    assert seen.site_queries == 1, "not within a minute"
    clock.advance(60.0)
    await resolve(finder, times=3)
    assert seen.site_queries == 2
    seen.serial = 7
    clock.advance(3600.0)
    await resolve(finder)
    assert seen.site_queries == 3


async def test_site_information_needs_a_token_and_is_requested_later_without_one() -> None:
    seen, clock, tokens = Seen(site_of(server_at("127.0.0.1", interface(2, 8000)))), Clock(), Tokens(0)
    finder = finder_of(seen, clock, tokens)
    await resolve(finder, times=2)
    assert seen.site_queries == 0
    tokens.left = 1
    clock.advance(60.0)
    await resolve(finder)
    assert seen.site_queries == 1


async def test_new_site_information_is_reported_once() -> None:
    reported: list[ServiceSite] = []
    seen, clock = Seen(site_of(server_at("127.0.0.1"), server_at("127.0.0.2"))), Clock()
    finder = finder_of(seen, clock, report=reported.append)
    await resolve(finder)
    clock.advance(3600.0)
    await resolve(finder)
    assert reported == [seen.site]


async def test_the_addresses_that_are_known_are_used_while_the_name_cannot_be_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*args: Any, **kwargs: Any) -> Sequence[Any]:
        raise socket.gaierror("no name server")

    seen, clock = Seen(), Clock()
    finder = finder_of(seen, clock, host="localhost")
    await finder.resolve(QUESTION)
    monkeypatch.setattr(direct, "look_up", fail)
    clock.advance(60.0)
    await finder.resolve(QUESTION)
    assert len(seen.services) == 2
    with pytest.raises(UpstreamUnreachable):
        await finder_of(seen, clock, host="localhost").resolve(QUESTION)
    await finder.aclose()


async def test_queries_share_one_look_up_of_the_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, look_ups = asyncio.Event(), 0

    async def wait(*args: Any, **kwargs: Any) -> Sequence[Any]:
        nonlocal look_ups
        look_ups += 1
        await gate.wait()
        raise socket.gaierror("no name server")

    seen = Seen()
    finder = finder_of(seen, host="localhost")
    monkeypatch.setattr(direct, "look_up", wait)
    tasks = [asyncio.create_task(finder.resolve(QUESTION)) for _ in range(3)]
    while not look_ups:  # noqa: ASYNC110 - the task has no event
        await asyncio.sleep(0)
    # A caller that goes away does not end the look-up of the others.
    tasks[0].cancel()
    gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in results] == [asyncio.CancelledError, UpstreamUnreachable, UpstreamUnreachable]
    assert look_ups == 1


async def test_a_look_up_under_way_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    began = asyncio.Event()

    async def wait(*args: Any, **kwargs: Any) -> Sequence[Any]:
        began.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    finder = finder_of(Seen(), host="localhost")
    monkeypatch.setattr(direct, "look_up", wait)
    task = asyncio.create_task(finder.resolve(QUESTION))
    await began.wait()
    await finder.aclose()
    with pytest.raises(asyncio.CancelledError):
        await task


# With a server


async def test_the_https_port_of_a_server_is_learned(tmp_path: Path) -> None:
    learned = asyncio.Event()
    key = new_key()
    exchange = open_exchange((TCP, HTTPS))
    async with HandleServer(key=key, tls=serve_tls(tmp_path, key)) as server:
        finder = direct_server(server, exchange, report=lambda site: learned.set())
        await finder.resolve(QUESTION)
        async with asyncio.timeout(10.0):
            await learned.wait()
        server.transports = frozenset({"http"})
        await finder.resolve(QUESTION)
        assert server.by_transport["https"] == 1
        await finder.aclose()
        await exchange.aclose()


@pytest.mark.parametrize(
    "lie",
    [1, 2, 4, 100, ServiceSite(1, (server_at("127.0.0.1", *[interface(1, port) for port in range(1, 1_001)]),))],
    ids=str,
)
async def test_a_server_without_site_information_works(lie: ServiceSite | int) -> None:
    async with HandleServer() as server, client_of(server) as client:
        server.site_information = lie
        for number in range(3):
            assert (await client.fetch(query(f"10.1000/{number}"))).code is ResponseCode.HANDLE_NOT_FOUND


async def test_ports_that_are_closed_or_silent_cost_no_answer() -> None:
    async with HandleServer() as closed:
        pass
    async with HandleServer(mute=frozenset({"udp", "tcp", "http"})) as silent, HandleServer() as server:
        ports = [interface(protocol, port) for protocol in (0, 1, 2) for port in (closed.port, silent.port)]
        server.site_information = site_of(server_at("127.0.0.1", *ports), serial=1)
        async with client_of(server, head_start=2.0) as client:
            for number in range(8):
                assert (await client.fetch(query(f"10.1000/{number}"))).code is ResponseCode.HANDLE_NOT_FOUND


async def test_a_key_of_the_site_information_does_not_verify_an_answer() -> None:
    async with HandleServer() as server, client_of(server, known=()) as client:
        for _ in range(2):
            with pytest.raises(UnprovenAnswer):
                await client.fetch(query("10.1000/182", certified=True))


async def test_one_server_of_several_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def allow() -> bool:
        return True

    async with HandleServer() as server:
        server.site_information = site_of(*server.site().servers, server_at("127.0.0.2"))
        with caplog.at_level(logging.WARNING, logger="doi_proxy.features.native.opening"):
            source = open_native(Settings(upstream_url=server.url), server.url, QueryTokens(allow, Tokens().spend))
            await source.probe()
            for _ in range(100):
                await source.probe()
                if caplog.records:
                    break
            await source.aclose()
        assert "is one of 2 servers of its site" in caplog.text


async def test_an_only_server_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def allow() -> bool:
        return True

    async with HandleServer() as server:
        source = open_native(Settings(upstream_url=server.url), server.url, QueryTokens(allow, Tokens().spend))
        for _ in range(5):
            await source.probe()
        await source.aclose()
    assert server.site_queries == 1
    assert caplog.records == []
