"""Messages reach a handle server by UDP, TCP and the HTTP tunnel, and the client learns which of them works."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from doi_proxy.errors import UpstreamUnreachable
from doi_proxy.features.native.direct import NativeSource
from doi_proxy.features.native.errors import ForeignAnswer
from handle_protocol.errors import ServerTimeout
from handle_protocol.referral import Question, ResponseCode
from handle_protocol.transport.udp import FIRST_WAIT
from handle_protocol.wire.message import Filters, Query, encode_query
from tests.features.native.clients import (
    HTTP,
    TCP,
    UDP,
    Exchanges,
    Tokens,
    candidate,
    client_of,
    direct_server,
    open_exchange,
    open_transports,
    query,
)
from tests.handle_protocol.server import HandleServer

pytestmark = pytest.mark.anyio

NAME = "10.1000/182"
#: No token is left for a request for site information, which would use a connection of its own.
NO_SITE = {"tokens": Tokens(0)}


async def test_the_tunnel_keeps_its_connection() -> None:
    async with HandleServer() as server, client_of(server, protocols=(HTTP,), direct=NO_SITE) as client:
        for _ in range(5):
            await client.fetch(query(NAME))
        assert server.connections == 1


async def test_tcp_has_a_connection_for_each_message() -> None:
    async with HandleServer() as server, client_of(server, protocols=(TCP,), direct=NO_SITE) as client:
        for _ in range(5):
            await client.fetch(query(NAME))
        assert server.queries() == server.connections == 5


async def test_a_lost_datagram_is_sent_again_with_the_same_id() -> None:
    async with HandleServer() as server, client_of(server, protocols=(UDP,), udp_wait=0.5) as client:
        server.datagrams_lost = 1
        assert (await client.fetch(query(NAME))).code is ResponseCode.HANDLE_NOT_FOUND
        assert server.queries() == 1


async def test_an_answer_with_a_lost_packet_is_not_joined_with_a_second_answer() -> None:
    class Partial(asyncio.DatagramProtocol):
        received = 0

        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, address: Any) -> None:
            self.received += 1
            # The first of two packets: a message of 600 bytes is announced.
            head = data[:2] + b"\x22" + data[3:16] + (600).to_bytes(4, "big")
            self.transport.sendto(head + bytes(492), address)

    loop = asyncio.get_running_loop()
    transport, partial = await loop.create_datagram_endpoint(Partial, local_addr=("127.0.0.1", 0))
    try:
        server = HandleServer(transport.get_extra_info("sockname")[1])
        request = encode_query(Query(Filters(b"10.1000/182"), request_id=7, expiration=0))
        with pytest.raises(ServerTimeout, match="were lost"):
            await open_transports((UDP,), udp_wait=0.5)[UDP].exchange(candidate(server, UDP), b"10.1000/182", request)
        assert partial.received == 1
    finally:
        transport.close()


async def test_a_firewall_that_swallows_udp_is_learned() -> None:
    seen = Exchanges()
    no_udp = HandleServer(mute=frozenset({"udp"}))
    async with no_udp as server, client_of(server, observer=seen, head_start=2.0) as client:
        for number in range(3):
            assert (await client.fetch(query(f"10.1000/{number}"))).code is ResponseCode.HANDLE_NOT_FOUND
        # One question was sent by UDP. The others did not wait for it.
        assert [answered for transport, answered in seen.seen if transport == "udp"] == [False]
        assert len([answered for _, answered in seen.seen if answered]) == 3
        assert seen.rests == ["udp"]


async def test_messages_are_counted_by_their_purpose() -> None:
    seen = Exchanges()
    async with HandleServer() as server, client_of(server, from_root=True, observer=seen) as client:
        server.put_values("0.NA/10.1000", server.site_value())
        for number in range(2):
            await client.fetch(query(f"10.1000/{number}"))
        assert (seen.purposes["name"], seen.purposes["site"]) == (2, 0)
        assert seen.purposes["lookup"] >= 1


async def test_a_transport_that_one_server_shows_to_be_blocked_is_the_last_at_another() -> None:
    exchange = open_exchange(head_start=2.0)
    async with HandleServer(mute=frozenset({"udp"})) as server, HandleServer() as other:
        for each in (server, other):
            finder = direct_server(each, exchange)
            await finder.resolve(Question(NAME.encode()))
            await finder.aclose()
        assert "udp" not in other.by_transport
        await exchange.aclose()


@pytest.mark.parametrize("transports", [("tcp", "http"), ("http",)])
async def test_a_closed_port_costs_no_wait(transports: tuple[str, ...]) -> None:
    async with HandleServer(transports=frozenset(transports)) as server, client_of(server) as client:
        assert (await client.fetch(query(NAME))).code is ResponseCode.HANDLE_NOT_FOUND
        assert server.by_transport == {transports[0]: 1}


async def test_each_further_message_needs_a_token() -> None:
    tokens = Tokens(0)
    async with HandleServer(transports=frozenset({"tcp"})) as server, client_of(server, tokens=tokens) as client:
        with pytest.raises(UpstreamUnreachable):
            await client.fetch(query(NAME))
        assert server.queries() == 0


async def answer_slowly(server: HandleServer, client: NativeSource) -> None:
    """The first answer of a server takes longer than UDP waits."""
    server.hold(NAME)
    fetching = asyncio.create_task(client.fetch(query(NAME)))
    await asyncio.sleep(2 * FIRST_WAIT)
    server.release(NAME)
    assert (await fetching).code is ResponseCode.HANDLE_NOT_FOUND


async def test_a_slow_server_has_two_head_starts_and_is_not_queried_by_udp_meanwhile() -> None:
    async with HandleServer() as server, client_of(server, head_start=2.0, direct=NO_SITE) as client:
        await answer_slowly(server, client)
        server.hold("10.1000/slow")
        fetching = asyncio.create_task(client.fetch(query("10.1000/slow")))
        await server.arrived("10.1000/slow", 2)
        server.release("10.1000/slow")
        assert (await fetching).code is ResponseCode.HANDLE_NOT_FOUND
        assert server.by_transport == {"udp": 1, "tcp": 1, "http": 1}


async def test_a_slow_server_whose_other_ports_fail_is_queried_by_udp() -> None:
    async with HandleServer(transports=frozenset({"udp"})) as server:
        async with client_of(server) as client:
            await answer_slowly(server, client)
            assert (await client.fetch(query(NAME))).code is ResponseCode.HANDLE_NOT_FOUND
        assert server.by_transport == {"udp": 2}


async def test_a_port_that_stays_silent_costs_a_head_start_if_its_server_answered_at_another() -> None:
    async with HandleServer(mute=frozenset({"http"})) as server:
        async with client_of(server, head_start=2.0, total_timeout=60.0) as client:
            server.lie(NAME, "digest")
            with pytest.raises(ForeignAnswer):
                await client.fetch(query(NAME))
        assert server.by_transport == {"udp": 1, "tcp": 1, "http": 1}
