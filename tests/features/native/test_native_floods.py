"""Servers that send a byte at a time, and forged packets: bounded in time, processor time and memory."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import structs

from doi_proxy.errors import UpstreamTimeout
from handle_protocol.errors import MalformedMessage, ServerUnreachable
from handle_protocol.transport.udp import Strangers, _Packets
from handle_protocol.wire.message import (
    NO_REQUEST_ID,
    AnswerText,
    Credential,
    Digest,
    Envelope,
    Filters,
    Header,
    Query,
    Response,
    Signature,
    Values,
    decode_envelope,
    encode_envelope,
    encode_query,
    split_message,
)
from tests.constants import changed
from tests.features.native.clients import HTTP, MAX_BYTES, TCP, UDP, candidate, client_of, open_transports, query
from tests.handle_protocol.encoder import encode_response, encode_signature
from tests.handle_protocol.keys import dsa_key, rsa_key, sign
from tests.handle_protocol.server import Content, HandleServer, write_bootstrap
from tests.web.proxy import Proxy

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


# --- A machine on the way to the root rewrites the records of prefixes in 31 ways. Signed lookups believe none of ----


_EVIL: Final = "https://evil.example/"
_SHA256: Final = 3
_ENVELOPE: Final = Envelope(77)
_OLD_DIGEST: Final = Digest(_SHA256, hashlib.sha256(b"an earlier request").digest())
#: Makes the bytes that are sent, of an honest answer and one that names the evil server. Neither is signed.
Tampering = Callable[[Response, Response], bytes | Response]


def _with_signature(answer: Response, signed: Response, **changes: Any) -> Response:
    """An answer under the signature of another one."""
    assert signed.credential is not None
    return replace(answer, credential=replace(signed.credential, **changes))


def _made(answer: Response, **changes: Any) -> Response:
    return replace(answer, envelope=structs.replace(answer.envelope, **changes))


def _absent(answer: Response, name: bytes = b"") -> Response:
    digest = Digest(_SHA256, hashlib.sha256(name).digest()) if name else answer.digest
    return replace(
        answer, header=structs.replace(answer.header, response_code=100), body=AnswerText(None), digest=digest
    )


def _section(name: bytes, signature: bytes) -> bytes:
    return encode_signature(Signature(name, signature))


def _credential(answer: Response) -> Credential:
    found = sign(answer, rsa_key()).credential
    assert found is not None
    return found


def _cut(data: bytes, *, repairs: bool) -> bytes:
    short = data[:-40]
    return short[:16] + (len(short) - 20).to_bytes(4) + short[20:] if repairs else short


def _age(version: tuple[int, int], *, is_signed: bool) -> Tampering:
    """The evil answer in an older version, with the signature of the honest one or without."""

    def tamper(honest: Response, evil: Response) -> Response:
        aged = _made(evil, major=version[0], minor=version[1])
        return _with_signature(aged, sign(honest, rsa_key())) if is_signed else aged

    return tamper


def _tamperings() -> Iterator[tuple[str, Tampering]]:
    key, evil_key = rsa_key(), dsa_key()
    yield "no signature", lambda honest, evil: evil
    yield "key of another server", lambda honest, evil: sign(evil, evil_key)
    yield "under the honest signature", lambda honest, evil: _with_signature(evil, sign(honest, key))
    for version in ((2, 10), (2, 8), (2, 7), (2, 5), (2, 1), (1, 0)):
        yield f"version {version}", _age(version, is_signed=True)
        yield f"version {version}, unsigned", _age(version, is_signed=False)
    yield "type HS_MAC", lambda honest, evil: _with_signature(evil, sign(evil, evil_key), type=b"HS_MAC")
    yield (
        "digest SHA1",
        lambda honest, evil: _with_signature(evil, sign(honest, key), section=_section(b"SHA1", b"\1" * 256)),
    )
    yield (
        "empty signature",
        lambda honest, evil: _with_signature(evil, sign(honest, key), section=_section(b"SHA-256", b"")),
    )
    yield "empty credential", lambda honest, evil: replace(evil, credential=Credential(b""))
    yield "another counter", lambda honest, evil: _with_signature(honest, sign(honest, key), counter=7)
    old = Response(_ENVELOPE, Header(1, 1), Values(b"0.NA/10.6666", ()), _OLD_DIGEST)
    yield "replay", lambda honest, evil: sign(replace(old, body=evil.body), key)
    yield (
        "replay, id repaired",
        lambda honest, evil: replace(sign(replace(old, body=evil.body), key), envelope=honest.envelope),
    )
    yield (
        "replay, id and digest repaired",
        lambda honest, evil: replace(
            sign(replace(old, body=evil.body), key), envelope=honest.envelope, digest=honest.digest
        ),
    )
    yield "absent, unsigned", lambda honest, evil: _absent(honest)
    yield "absent, key of another server", lambda honest, evil: sign(_absent(honest), evil_key)
    yield "absent, replay of another name", lambda honest, evil: sign(_absent(honest, b"another request"), key)
    yield "cut", lambda honest, evil: _cut(encode_response(sign(evil, evil_key)), repairs=False)
    yield "cut, length repaired", lambda honest, evil: _cut(encode_response(sign(evil, evil_key)), repairs=True)
    yield (
        "error without an id",
        lambda honest, evil: Response(
            _made(honest, request_id=NO_REQUEST_ID).envelope, Header(0, 4), AnswerText(b"no")
        ),
    )
    yield "referral", lambda honest, evil: replace(evil, header=structs.replace(evil.header, response_code=303))
    yield "not responsible", lambda honest, evil: replace(_absent(honest), header=Header(1, 301))


class _Relay(HandleServer):
    """The root behind a machine that rewrites the record of each prefix in a way of its own."""

    def __init__(self, home: HandleServer, evil: HandleServer, ways: dict[str, Tampering]) -> None:
        super().__init__(transports=frozenset({"tcp"}))
        self._home, self._evil, self._ways = home, evil, ways

    def _write(self, query: Query, data: bytes, content: Content, lie: str | None) -> bytes:
        way = self._ways.get(query.filters.handle.decode())
        if way is None:
            return super()._write(query, data, content, lie)
        honest = self._make_answer(query, data, (self._home.site_value(),))
        sent = way(honest, replace(honest, body=Values(query.filters.handle, (self._evil.site_value(),))))
        return encode_response(sent) if isinstance(sent, Response) else sent


@pytest.mark.parametrize(
    ("verify", "query"), [("lookups", ""), ("lookups", "?cert"), ("when-asked", "?cert"), ("always", ""), ("never", "")]
)
async def test_no_tampered_record_of_a_prefix_steers_a_name_or_denies_it(
    tmp_path: Path, verify: str, query: str
) -> None:
    tamperings = dict(_tamperings())
    prefixes = {f"10.{7_000 + number}": way for number, way in enumerate(tamperings.values())}
    steered, missing = 0, 0
    async with HandleServer(serial=2) as home, HandleServer(serial=3, key=dsa_key()) as evil:
        for prefix in prefixes:
            home.put(f"{prefix}/x", url="https://home.example/")
            evil.put(f"{prefix}/x", url=_EVIL)
        async with _Relay(home, evil, {f"0.NA/{prefix}": way for prefix, way in prefixes.items()}) as root:
            (tmp_path / "root.json").write_bytes(write_bootstrap(root))
            settings = {"upstream_url": "hdl:", "upstream_bootstrap": tmp_path / "root.json", "upstream_verify": verify}
            async with Proxy(**settings, upstream_private_servers=True) as proxy:
                for prefix in prefixes:
                    got = await proxy.get(f"/{prefix}/x{query}")
                    steered += got["location"] == _EVIL
                    missing += got.status == 404
    assert len(prefixes) == 31
    # The control: without signatures, a machine on the way is believed.
    assert (steered > 0, missing > 0) == ((True, True) if verify == "never" else (False, False))
    if verify != "never":
        assert evil.queries() == 0
