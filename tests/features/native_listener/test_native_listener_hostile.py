"""What strangers send to the native listener: forged packets, slow and broken connections, smuggled requests."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from typing import Any, Final, cast

import pytest

from app.features.native.wire.fields import U32
from app.features.native.wire.message import OpFlag
from app.features.native.wire.query import Filters, Query, encode_query
from app.features.native.wire.response import decode_response
from app.features.native_listener.datagrams import MAX_NETWORKS, AnswerLimit, NativeDatagrams
from app.features.native_listener.messages import MAX_REQUEST_BYTES
from app.server.connections import Reason
from tests.constants import MOST_WAITING, PER_CLIENT
from tests.features.native_listener.listening import PATIENCE, Listening, listening, post
from tests.table import table

# Its servers use sockets of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

NAME: Final = "10.1000/182"
REQUEST: Final = encode_query(Query(Filters(NAME.encode()), 7, 1_900_000_000))


def _code(answer: bytes | None) -> int:
    assert answer
    return decode_response(answer, digest_requested=False).code


async def _until_none_is_open(proxy: Listening) -> None:
    async with asyncio.timeout(PATIENCE):
        while len(proxy.connections):  # noqa: ASYNC110 - the listener says nothing about an end
            await asyncio.sleep(0)


class _Sent:
    """What a socket for UDP would send."""

    def __init__(self) -> None:
        self.packets: list[tuple[bytes, Any]] = []

    def sendto(self, data: bytes, address: Any) -> None:
        self.packets.append((data, address))


def _datagrams(proxy: Listening, timer: Any) -> tuple[NativeDatagrams, _Sent]:
    responder: Any = proxy.proxy.app.listeners["native_listen"]
    datagrams, sent = NativeDatagrams(responder._responder, "127.0.0.1", 2641, timer), _Sent()
    datagrams.connection_made(cast(asyncio.DatagramTransport, sent))
    return datagrams, sent


@table("victim", ["198.51.100.{}", "2001:db8:1:2{:02x}::1"])
async def test_a_network_whose_addresses_are_forged_gets_five_small_packets_a_second(victim: str) -> None:
    now = 0.0
    async with listening() as proxy:
        proxy.upstream.put(NAME, url="https://example.org/" + "a" * 300)
        await proxy.resolve(NAME)
        datagrams, sent = _datagrams(proxy, lambda: now)
        for step in range(4_000):
            now = step / 1_000
            datagrams.datagram_received(REQUEST, (victim.format(step % 256), 4_000 + step))
        # Four seconds have passed. No second of them, whenever it begins, has more than five packets.
        assert len(sent.packets) == 20
        assert {len(packet) for packet, _ in sent.packets} <= set(range(300, 513))
        datagrams.datagram_received(REQUEST, ("203.0.113.1", 1))
        assert len(sent.packets) == 21


def test_a_flood_of_networks_does_not_free_the_answers_of_one() -> None:
    limit = AnswerLimit()
    assert [limit.admit("victim", 0.0) for _ in range(6)] == [True] * 5 + [False]
    admitted = [limit.admit(f"network {number}", 0.5) for number in range(2 * MAX_NETWORKS)]
    assert admitted.count(True) == MAX_NETWORKS - 1
    assert not limit.admit("victim", 0.9)
    assert limit.admit("victim", 1.1) and limit.admit("another", 1.6)


async def test_udp_drops_what_is_long_or_broken() -> None:
    async with listening() as proxy:
        proxy.upstream.put(NAME, url="https://example.org/" + "a" * 600)
        assert _code(await proxy.exchange(REQUEST)) == 1
        datagrams, sent = _datagrams(proxy, iter(range(100)).__next__)
        part = REQUEST[:2] + b"\x22" + REQUEST[3:]
        for packet in (REQUEST, b"", REQUEST[:20], REQUEST[:-1], REQUEST + b"\0", part, b"\xff" * 512):
            datagrams.datagram_received(packet, ("198.51.100.7", 7))
        assert sent.packets == []


async def test_cold_names_by_udp_have_few_places() -> None:
    async with listening() as proxy:
        datagrams, sent = _datagrams(proxy, lambda: 0.0)
        for number in range(200):
            proxy.upstream.hold(f"10.1000/{number}")
            query = encode_query(Query(Filters(f"10.1000/{number}".encode()), 7, 0))
            datagrams.datagram_received(query, (f"198.51.{number}.7", 7))
        assert len(datagrams._waiting) == 64
        datagrams.connection_lost(None)
        await asyncio.gather(*datagrams._waiting, return_exceptions=True)
        assert sent.packets == []


async def test_queries_of_forged_addresses_are_not_charged_to_their_network() -> None:
    async with listening("127.0.0.1", **{MOST_WAITING: 4, "upstream_max_concurrency": 4}) as proxy:
        seconds = itertools.count()
        datagrams, sent = _datagrams(proxy, lambda: float(next(seconds)))
        for number in range(40):
            proxy.upstream.hold(f"10.1000/{number}")
            query = encode_query(Query(Filters(f"10.1000/{number}".encode()), 7, 0))
            datagrams.datagram_received(query, ("198.51.100.7", 7))
        proxy.upstream.put("10.1000/by-http", url="https://target.example/")
        async with asyncio.timeout(PATIENCE):
            while not sent.packets:  # noqa: ASYNC110 - until the client of these packets is over its share
                await asyncio.sleep(0)
        got = await proxy.proxy.ask("GET", "/10.1000/by-http", client="198.51.100.8")
        assert got.status == 302
        datagrams.connection_lost(None)
        await asyncio.gather(*datagrams._waiting, return_exceptions=True)


@pytest.mark.parametrize("flag", [OpFlag.AUTHORITATIVE, OpFlag.CERTIFIED])
@pytest.mark.parametrize(("address", "waiting"), [("198.51.100.7", 0), ("127.0.0.1", 1)])
async def test_a_forged_address_does_not_bypass_the_cache(flag: OpFlag, address: str, waiting: int) -> None:
    async with listening() as proxy:
        datagrams, _ = _datagrams(proxy, lambda: 0.0)
        datagrams.datagram_received(encode_query(Query(Filters(b"10.1000/182"), 7, 0, flag)), (address, 7))
        assert len(datagrams._waiting) == waiting
        datagrams.connection_lost(None)
        await asyncio.gather(*datagrams._waiting, return_exceptions=True)


async def test_udp_is_for_this_machine_alone_by_default() -> None:
    async with listening(address="0.0.0.0") as proxy:
        assert await proxy.exchange(REQUEST, by="udp") is None
        assert _code(await proxy.exchange(REQUEST)) == 100
    async with listening(address="0.0.0.0", native_listen_udp=True) as proxy:
        assert _code(await proxy.exchange(REQUEST, by="udp")) == 100


async def test_a_client_that_resets_its_connection_before_it_is_accepted_leaves_no_error() -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with listening() as proxy:
        for request in (REQUEST, REQUEST[:10], post(REQUEST)) * 5:
            with socket.create_connection(("127.0.0.1", proxy.port)) as client:
                client.sendall(request)
                # A close sends a reset (SO_LINGER, socket(7)). The listener accepts the connection after it.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert _code(await proxy.exchange(REQUEST)) == 100
        await _until_none_is_open(proxy)
    assert errors == []


@pytest.mark.parametrize("is_cached", [True, False], ids=["cached", "new"])
@pytest.mark.parametrize("end", [True, False], ids=["half-closed", "open"])
async def test_a_connection_ends_with_its_client(is_cached: bool, end: bool) -> None:
    async with listening() as proxy:
        proxy.upstream.put(NAME, url="https://example.org/")
        if is_cached:
            await proxy.resolve(NAME)
        assert _code(await proxy.send(REQUEST, end=end)) == 1
        await _until_none_is_open(proxy)


async def test_a_message_in_pieces_is_answered() -> None:
    async with listening() as proxy:
        assert _code(await proxy.send(*(bytes([byte]) for byte in REQUEST))) == 100


@table("length", [MAX_REQUEST_BYTES, 0x7FFF_FFFF, 0xFFFF_FFFF, 0, 23])
async def test_a_length_that_no_request_has_is_answered_at_once(length: int) -> None:
    async with listening() as proxy:
        assert _code(await proxy.send(REQUEST[:16] + U32.pack(length) + REQUEST[20:])) == 4


async def test_a_connection_has_one_answer() -> None:
    async with listening() as proxy:
        assert _code(await proxy.send(REQUEST * 3)) == 100
        assert await proxy.send(REQUEST[:30], end=True) == b""


async def test_a_slow_peer_loses_its_connection() -> None:
    async with listening() as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(REQUEST[:21])
        await _until(lambda: any(one._data for one in proxy.connections._holder))
        writer.write(REQUEST[21:30])
        proxy.connections.sweep(proxy.connections.now + 20)
        with pytest.raises(ConnectionError):
            assert not await asyncio.wait_for(reader.read(), PATIENCE)
            raise ConnectionError
        writer.close()
        await _until(lambda: proxy.connections.closed[Reason.HEAD_TIMEOUT] == 1)
        assert len(proxy.connections) == 0


async def test_the_time_for_a_head_of_http_begins_with_the_connection() -> None:
    async with listening() as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        await _until(lambda: len(proxy.connections) == 1)
        (connection,) = proxy.connections._holder
        connection.since = began = proxy.connections.now - 14
        writer.write(b"POST ")
        await _until(lambda: connection not in proxy.connections._holder)
        assert [one.since for one in proxy.connections._holder] == [began]
        writer.close()
        await reader.read()


async def test_connections_of_one_client_are_bounded() -> None:
    async with listening("127.0.0.1", **{PER_CLIENT: 4, "trusted_proxies": "192.0.2.1"}) as proxy:
        idle = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(12)]
        await _until(lambda: len(proxy.connections) == 4)
        proxy.connections.sweep(proxy.connections.now + 5)
        assert _code(await proxy.send(REQUEST)) == 100
        for _, writer in idle:
            writer.close()


async def test_a_client_that_goes_away_harms_nobody() -> None:
    async with listening() as proxy:
        proxy.upstream.put(NAME, url="https://example.org/")
        proxy.upstream.hold(NAME)
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(REQUEST)
        await proxy.upstream.arrived(NAME)
        writer.transport.abort()
        await _until(lambda: len(proxy.connections) == 0)
        proxy.upstream.release(NAME)
        assert _code(await proxy.send(REQUEST)) == 1


@table(
    "head, status",
    [
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 0", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999", 415),
        (b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0", 415),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close", 405),
        (b"A" * 70_000, 431),
    ],
)
async def test_a_request_of_http_is_not_smuggled(head: bytes, status: int) -> None:
    async with listening() as proxy:
        answer = await proxy.send(head + b"\r\n\r\n" + post(REQUEST), end=True)
        assert answer.startswith(b"HTTP/1.1 %d " % status) or (status == 431 and answer.startswith(b"HTTP/1.1 4"))
        assert answer.count(b"HTTP/1.1 ") == 1


async def test_a_tunnel_carries_message_after_message() -> None:
    async with listening() as proxy:
        keep = post(REQUEST).replace(b"Connection: close\r\n", b"")
        answer = await proxy.send(keep + keep + post(REQUEST))
        assert answer.count(b"HTTP/1.1 200 ") == 3
        assert (await proxy.send(post(b"\x02" * (MAX_REQUEST_BYTES + 1)))).startswith(b"HTTP/1.1 413 ")


async def _until(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - these conditions have no event
            await asyncio.sleep(0.01)
