"""Servers that send a byte at a time, and forged packets: bounded in time, processor time and memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv4Address
from typing import Any

import pytest
from msgspec import structs

from doi_proxy.errors import UpstreamTimeout
from handle_protocol.dump import MalformedMessage, ServerUnreachable
from handle_protocol.transport.udp import Strangers, _Packets
from handle_protocol.wire.message import (
    NO_REQUEST_ID,
    Filters,
    Query,
    decode_envelope,
    encode_envelope,
    encode_query,
    split_message,
)
from tests.constants import changed
from tests.features.native.clients import HTTP, MAX_BYTES, TCP, UDP, candidate, client_of, open_transports, query
from tests.handle_protocol.server import HandleServer

pytestmark = pytest.mark.anyio

NAME = "10.1000/182"
MAX_STRANGERS = "handle_protocol.transport.udp._MAX_STRANGERS"


def message(request_id: int) -> bytes:
    return encode_query(Query(Filters(NAME.encode()), request_id=request_id, expiration=0))


_TCP_START = message(7)[:16] + (60_000).to_bytes(4, "big")
_HTTP_START = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-hdl-message\r\nContent-Length: 60000\r\n\r\n"


@pytest.mark.parametrize(
    ("protocol", "start"),
    [(TCP, _TCP_START), (TCP, b""), (HTTP, _HTTP_START), (HTTP, b"HTTP/1.1 200 OK\r\nX: ")],
    ids=["tcp-body", "tcp-head", "http-body", "http-head"],
)
async def test_a_server_that_sends_a_byte_at_a_time_costs_the_total_timeout(protocol: Any, start: bytes) -> None:
    ended = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        with suppress(OSError):
            while not reader.at_eof() and not writer.is_closing():
                writer.write(b"\0" if protocol is TCP else b"x")
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(4_096), 1.0)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    named = HandleServer(server.sockets[0].getsockname()[1])
    async with client_of(named, protocols=(protocol,), total_timeout=8.0) as client:
        with pytest.raises(UpstreamTimeout):
            await client.fetch(query(NAME))
    # The client closed the connection.
    async with asyncio.timeout(10.0):
        await ended.wait()
    server.close()
    await server.wait_closed()


class Forger(asyncio.DatagramProtocol):
    """Sends forged packets before the answer to each request."""

    def __init__(self, forged: Callable[[int], bytes], count: int, answer: Callable[[bytes], bytes]) -> None:
        self._forged = forged
        self._count = count
        self._answer = answer

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        for number in range(self._count):
            self.transport.sendto(self._forged(number), address)
        self.transport.sendto(self._answer(data), address)


@asynccontextmanager
async def forger(
    forged: Callable[[int], bytes], count: int, answer: Callable[[bytes], bytes] = bytes
) -> AsyncIterator[HandleServer]:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Forger(forged, count, answer), local_addr=("127.0.0.1", 0)
    )
    try:
        yield HandleServer(transport.get_extra_info("sockname")[1])
    finally:
        transport.close()


@pytest.mark.parametrize(
    "forged",
    [
        lambda number: message(1_000 + number),
        lambda number: message(NO_REQUEST_ID),
        lambda number: b"\0" * (number % 20),
        lambda number: message(1_000 + number)[:16] + b"\x7f" * 4,
    ],
    ids=["wrong-ids", "no-id", "short", "long-lengths"],
)
async def test_the_answer_counts_after_500_forged_packets(forged: Callable[[int], bytes]) -> None:
    async with forger(forged, 500) as server:
        transport = open_transports((UDP,))[UDP]
        assert await transport.exchange(candidate(server, UDP), NAME.encode(), message(7)) == message(7)


async def test_an_answer_without_an_id_counts_if_no_other_comes() -> None:
    async with forger(lambda number: message(NO_REQUEST_ID), 1, lambda data: message(8)) as server:
        transport = open_transports((UDP,), udp_wait=0.5)[UDP]
        got = await transport.exchange(candidate(server, UDP), NAME.encode(), message(7))
        assert got == message(NO_REQUEST_ID)


async def test_forged_packets_without_end_end_the_message() -> None:
    with changed({MAX_STRANGERS: 500}):
        packets, stranger = _Packets(7, MAX_BYTES), message(8)
    for _ in range(500):
        packets.datagram_received(stranger, None)
    assert not packets.message.done()
    packets.datagram_received(stranger, None)
    with pytest.raises(MalformedMessage, match="cannot be decoded"):
        packets.message.result()


async def test_copies_of_a_packet_without_end_end_the_message() -> None:
    # An answer of 984 bytes has three packets at most, and each can arrive four times.
    whole = structs.replace(decode_envelope(message(7)), message_length=984)
    packets, part = _Packets(7, 984), split_message(encode_envelope(whole) + bytes(984))[0]
    for _ in range(4 * 3):
        packets.datagram_received(part, None)
    assert not packets.message.done()
    packets.datagram_received(part, None)
    with pytest.raises(MalformedMessage, match="cannot be decoded"):
        packets.message.result()


class Silent(asyncio.DatagramProtocol):
    """Counts packets, and answers none before `answers`."""

    def __init__(self) -> None:
        self.packets = 0
        self.arrived = asyncio.Event()
        self.answers = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.packets += 1
        self.arrived.set()
        if self.answers:
            self.transport.sendto(data, address)


async def test_a_third_party_that_never_answers_gets_one_packet_at_a_time() -> None:
    silent = Silent()
    loop = asyncio.get_running_loop()
    listening, _ = await loop.create_datagram_endpoint(lambda: silent, local_addr=("127.0.0.1", 0))
    place = candidate(HandleServer(listening.get_extra_info("sockname")[1]), UDP)
    # The interval is two first waits, which is longer than the test.
    transport = open_transports((UDP,))[UDP]
    queries = [asyncio.create_task(transport.exchange(place, NAME.encode(), message(one))) for one in range(100)]
    await asyncio.wait_for(silent.arrived.wait(), 10.0)
    for _ in range(200):
        await asyncio.sleep(0)
    assert silent.packets == 1
    for one in queries:
        one.cancel()
    await asyncio.gather(*queries, return_exceptions=True)
    listening.close()


async def test_messages_wait_for_the_first_answer_of_an_address_and_no_longer() -> None:
    silent = Silent()
    silent.answers = True
    loop = asyncio.get_running_loop()
    listening, _ = await loop.create_datagram_endpoint(lambda: silent, local_addr=("127.0.0.1", 0))
    place = candidate(HandleServer(listening.get_extra_info("sockname")[1]), UDP)
    transport = open_transports((UDP,))[UDP]
    async with asyncio.timeout(20.0):
        answers = await asyncio.gather(*(transport.exchange(place, b"", message(one)) for one in range(100)))
    assert (answers, silent.packets) == ([message(one) for one in range(100)], 100)
    listening.close()


async def test_messages_do_not_wait_for_a_port_that_refused_the_first() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        place = candidate(HandleServer(closed.getsockname()[1]), UDP)
    # The interval is two first waits, which is longer than the test.
    transport = open_transports((UDP,))[UDP]
    async with asyncio.timeout(20.0):
        queries = (transport.exchange(place, b"", message(one)) for one in range(100))
        failures = await asyncio.gather(*queries, return_exceptions=True)
        with pytest.raises(ServerUnreachable):
            await transport.exchange(place, b"", message(100))
    assert {type(failure) for failure in failures} == {ServerUnreachable}


def test_a_port_that_refused_counts_as_closed_until_the_next_packet_may_be_sent() -> None:
    strangers, address = Strangers(1.0), IPv4Address("192.0.2.1")
    assert strangers.may_send(address, 1, 0.0)
    strangers.record_refusal(address, 2641, 0.1)
    assert [strangers.is_closed(address, 2641, now) for now in (0.2, 0.9, 1.0)] == [True, True, False]
    assert not strangers.is_closed(address, 8000, 0.2)
    assert not strangers.may_send(address, 1, 0.9) and strangers.may_send(address, 1, 1.0)
    strangers.record_refusal(address, 2641, 5.0)  # of a message that was sent long ago
    assert not strangers.is_closed(address, 2641, 5.0)


def test_strangers_are_counted_by_address_and_packet() -> None:
    strangers, address, other = Strangers(1.0), IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")
    assert [strangers.may_send(address, 1, now) for now in (0.0, 0.5, 1.0, 1.5)] == [True, False, True, False]
    assert strangers.may_send(other, 3, 1.5)
    assert [strangers.may_send(other, 1, now) for now in (4.0, 4.5)] == [False, True]
    strangers.record_answer(address)
    assert all(strangers.may_send(address, 17, 1.5) for _ in range(100))


async def test_the_wait_for_an_address_ends_with_the_answer_to_the_message_itself() -> None:
    strangers, address = Strangers(60.0), IPv4Address("192.0.2.1")
    message: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    assert strangers.may_send(address, 1, 0.0)
    waiting = asyncio.create_task(strangers.wait_for_answer(address, message, 60.0))
    await asyncio.sleep(0)
    message.set_result(b"")
    async with asyncio.timeout(10.0):
        await waiting
