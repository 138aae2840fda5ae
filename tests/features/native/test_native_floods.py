"""Slow servers, forged packets, and a machine on the way that changes answers: bounded, and never believed."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.dsa import DSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from msgspec import structs

from doi_proxy.errors import UpstreamTimeout
from handle_protocol.errors import MalformedMessage, ServerTimeout, ServerUnreachable
from handle_protocol.transport.udp import _Packets
from handle_protocol.wire.message import (
    NO_REQUEST_ID,
    AnswerText,
    Credential,
    Digest,
    Filters,
    OpFlag,
    Query,
    Response,
    Signature,
    Values,
    decode_envelope,
    encode_envelope,
    encode_query,
    split_message,
)
from handle_protocol.wire.site_value import U32, ServiceSite, Value, decode_site, encode_site
from tests.constants import changed
from tests.features.native.clients import HTTP, LONG, MAX_BYTES, TCP, UDP, candidate, client_of, open_transports, query
from tests.handle_protocol.encoder import encode_content, encode_response, encode_signature
from tests.handle_protocol.keys import dsa_key, other_dsa_key, rsa_key, sign
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
        self.place = candidate(HandleServer(transport.get_extra_info("sockname")[1]), UDP)

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.packets += 1
        self.arrived.set()
        if self.answers:
            self.transport.sendto(data, address)


@pytest.fixture
async def silent() -> AsyncIterator[Silent]:
    """A third party at an address of UDP."""
    party = Silent()
    listening, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: party, local_addr=("127.0.0.1", 0))
    yield party
    listening.close()


async def test_a_third_party_that_never_answers_gets_one_packet_at_a_time(silent: Silent) -> None:
    # The interval is two first waits, which is longer than the test.
    transport = open_transports((UDP,))[UDP]
    queries = [asyncio.create_task(transport.exchange(silent.place, NAME.encode(), message(one))) for one in range(100)]
    await asyncio.wait_for(silent.arrived.wait(), 10.0)
    for _ in range(200):
        await asyncio.sleep(0)
    assert silent.packets == 1
    for one in queries:
        one.cancel()
    await asyncio.gather(*queries, return_exceptions=True)


async def test_messages_wait_for_the_first_answer_of_an_address_and_no_longer(silent: Silent) -> None:
    silent.answers = True
    transport = open_transports((UDP,))[UDP]
    async with asyncio.timeout(20.0):
        answers = await asyncio.gather(*(transport.exchange(silent.place, b"", message(one)) for one in range(100)))
    assert (answers, silent.packets) == ([message(one) for one in range(100)], 100)


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


async def test_a_third_party_gets_the_messages_of_a_cancelled_query_one_at_a_time(silent: Silent) -> None:
    transport = open_transports((UDP,))[UDP]
    queries = [asyncio.create_task(transport.exchange(silent.place, NAME.encode(), message(one))) for one in range(4)]
    for one in queries:
        await asyncio.wait_for(silent.arrived.wait(), 10.0)
        silent.arrived.clear()
        one.cancel()
    await asyncio.gather(*queries, return_exceptions=True)
    assert silent.packets == 4


async def test_messages_to_a_silent_address_fail_with_the_first(silent: Silent) -> None:
    transport = open_transports((UDP,), udp_wait=0.5)[UDP]
    queries = (transport.exchange(silent.place, b"", message(one)) for one in range(100))
    failures = await asyncio.gather(*queries, return_exceptions=True)
    assert ({type(failure) for failure in failures}, silent.packets) == ({ServerTimeout}, 3)


# --- A machine on the way forges signed answers: of the root about prefixes, and of a handle server about names ------


_HOME: Final = "https://home.example/"
_EVIL: Final = "https://evil.example/"
_SHA256: Final = 3
_EARLIER: Final = Digest(_SHA256, hashlib.sha256(b"the query of a minute ago").digest())
#: The root signs with RSA, the handle server and the mirror of the root with DSA, which SHA-1 is about.
Key = RSAPrivateKey | DSAPrivateKey
#: What is sent, of an honest answer, what the machine wants to be believed, and the key of the server that was queried.
Forgery = Callable[[Response, Response, Key], bytes | Response]


def _under(answer: Response, signed: Response, **changes: Any) -> Response:
    """An answer under the signature of another one."""
    assert signed.credential is not None
    return replace(answer, credential=replace(signed.credential, **changes))


def _headed(answer: Response, **changes: Any) -> Response:
    return replace(answer, header=structs.replace(answer.header, **changes))


def _enveloped(answer: Response, **changes: Any) -> Response:
    return replace(answer, envelope=structs.replace(answer.envelope, **changes))


def _listing(answer: Response, *values: Value) -> Response:
    assert isinstance(answer.body, Values)
    return replace(answer, body=Values(answer.body.handle, values))


def _values(answer: Response) -> tuple[Value, ...]:
    assert isinstance(answer.body, Values)
    return answer.body.values


def _mended(evil: Response, honest: Response, change: Callable[[ServiceSite, ServiceSite], ServiceSite]) -> Response:
    """The honest sites with something of the evil one. The answer about a name has none, and stays evil."""
    pairs = zip(_values(honest), _values(evil), strict=True)
    values = [
        replace(true, data=encode_site(change(decode_site(true.data), decode_site(false.data))))
        if true.type == b"HS_SITE"
        else false
        for true, false in pairs
    ]
    return _listing(honest, *values)


def _with_key(true: ServiceSite, false: ServiceSite) -> ServiceSite:
    """The key of the evil server at the address of the honest one."""
    return replace(true, servers=(replace(true.servers[0], public_key=false.servers[0].public_key),))


def _with_address(true: ServiceSite, false: ServiceSite) -> ServiceSite:
    """The honest key, and the ports of the evil server."""
    return replace(true, servers=(replace(true.servers[0], interfaces=false.servers[0].interfaces),))


def _sign_by_sha1(answer: Response, key: Key, name: bytes = b"SHA1") -> Response:
    """The answer, truly signed by SHA-1, as a server signs for old clients."""
    envelope = answer.envelope
    head = bytes((envelope.major, envelope.minor, envelope.suggested_major, envelope.suggested_minor))
    content = head + U32.pack(envelope.session_id) + U32.pack(envelope.request_id) + U32.pack(0)
    content += encode_content(answer)
    signature = key.sign(content, PKCS1v15(), SHA1()) if isinstance(key, RSAPrivateKey) else key.sign(content, SHA1())
    return replace(answer, credential=Credential(encode_signature(Signature(name, signature))))


def _without_envelope(answer: Response, key: Key) -> Response:
    """Signed as in version 2.5: the header and the body alone."""
    content = encode_content(answer)
    signature = (
        key.sign(content, PKCS1v15(), SHA256()) if isinstance(key, RSAPrivateKey) else key.sign(content, SHA256())
    )
    return replace(answer, credential=Credential(encode_signature(Signature(b"SHA-256", signature))))


def _replayed(honest: Response, evil: Response, key: Key, **changes: Any) -> Response:
    """What the server truly signed for an earlier query, when the evil values were true, with changes."""
    signed = sign(replace(evil, envelope=structs.replace(honest.envelope, request_id=77), digest=_EARLIER), key)
    return replace(signed, **changes)


def _same_second(honest: Response, evil: Response, key: Key) -> Response:
    """A replay of a query of this very second: the digest is right, and the id was another one."""
    return replace(sign(_enveloped(evil, request_id=77), key), envelope=honest.envelope)


def _of_another_name(honest: Response, evil: Response, key: Key) -> Response:
    """The server's true answer about another name, truly signed, with the right digest."""
    return sign(replace(evil, body=Values(b"0.NA/10.6666", _values(evil))), key)


def _renamed(honest: Response, evil: Response, key: Key) -> Response:
    """The same, with the name that was queried."""
    return replace(_of_another_name(honest, evil, key), body=evil.body)


def _in_version(major: int, minor: int, *, is_signed: bool = False) -> Forgery:
    """The evil answer in an older version, under the signature of the honest one or without one."""

    def forge(honest: Response, evil: Response, key: Key) -> Response:
        aged = _enveloped(evil, major=major, minor=minor)
        return _under(aged, sign(honest, key)) if is_signed else aged

    return forge


def _shortened(data: bytes) -> bytes:
    return data[:16] + (len(data) - 60).to_bytes(4) + data[20:-40]


def _forgeries() -> Iterator[tuple[str, Forgery]]:
    mirror, own = dsa_key(), other_dsa_key()
    yield "no signature", lambda h, e, k: e
    yield "under the signature", lambda h, e, k: _under(e, sign(h, k))
    for major, minor in ((2, 10), (2, 8), (2, 7), (2, 5), (2, 1), (1, 0)):
        yield f"version {major}.{minor}", _in_version(major, minor)
        yield f"version {major}.{minor}, signed", _in_version(major, minor, is_signed=True)
    yield "type HS_MAC", lambda h, e, k: _under(e, sign(e, own), type=b"HS_MAC")
    yield "empty signature", lambda h, e, k: _under(e, sign(h, k), section=encode_signature(Signature(b"SHA-256", b"")))
    yield "empty credential", lambda h, e, k: replace(e, credential=Credential(b""))
    yield "another counter", lambda h, e, k: _under(h, sign(h, k), counter=7)
    yield "values added", lambda h, e, k: _under(_listing(h, *_values(e), *_values(h)), sign(h, k))
    yield "a value removed", lambda h, e, k: _under(_listing(h), sign(h, k))
    yield "key swapped", lambda h, e, k: _under(_mended(e, h, _with_key), sign(h, k))
    yield "ports swapped", lambda h, e, k: _under(_mended(e, h, _with_address), sign(h, k))
    yield (
        "version of the site lowered",
        lambda h, e, k: _under(_mended(e, h, lambda true, false: replace(false, minor=8)), sign(h, k)),
    )
    yield (
        "TTL raised",
        lambda h, e, k: _under(_listing(e, *(replace(v, ttl=2**31 - 1) for v in _values(e))), sign(h, k)),
    )
    yield "key of the mirror", lambda h, e, k: sign(e, mirror if k is not mirror else rsa_key())
    yield "key of the machine", lambda h, e, k: sign(e, own)
    yield "true answer about another name", _of_another_name
    yield "true answer about another name, renamed", _renamed
    yield "replay", _replayed
    yield "replay, id repaired", lambda h, e, k: _replayed(h, e, k, envelope=h.envelope)
    yield "replay, id and digest repaired", lambda h, e, k: _replayed(h, e, k, envelope=h.envelope, digest=h.digest)
    yield "replay of this second, id repaired", _same_second
    yield "SHA1 in version 2.10", lambda h, e, k: _sign_by_sha1(_enveloped(h, minor=10), k)
    yield "SHA1 in version 2.11", lambda h, e, k: _sign_by_sha1(h, k)
    yield "SHA1 called SHA-256", lambda h, e, k: _sign_by_sha1(h, k, b"SHA-256")
    yield "SHA-256 called SHA1", lambda h, e, k: _under(h, sign(h, k), section=_renamed_section(sign(h, k)))
    yield "digest MD5", lambda h, e, k: _under(h, sign(h, k), section=encode_signature(Signature(b"MD5", b"\1" * 20)))
    yield "true signature in version 2.9", lambda h, e, k: sign(_enveloped(h, minor=9), k)
    yield "envelope not signed, version 2.5", lambda h, e, k: _without_envelope(_enveloped(e, minor=5), k)
    yield "envelope not signed, version 2.11", lambda h, e, k: _without_envelope(e, own)
    yield "suggested version changed", lambda h, e, k: _enveloped(sign(h, k), suggested_minor=5)
    yield "a session", lambda h, e, k: _enveloped(sign(h, k), session_id=5)
    yield "digest of the request is SHA-1", lambda h, e, k: _under(replace(e, digest=_by_sha1(h)), sign(h, k))
    yield "digest of the request left out", _without_digest
    yield "expiration changed", lambda h, e, k: _under(_headed(h, expiration=1), sign(h, k))
    yield "serial number changed", lambda h, e, k: _under(_headed(h, site_serial=9), sign(h, k))
    yield "recursion count changed", lambda h, e, k: _under(_headed(h, recursion_count=3), sign(h, k))
    yield "operation changed", lambda h, e, k: _under(_headed(e, op_code=2), sign(h, k))
    yield "values not found", lambda h, e, k: _under(_coded(h, 200), sign(h, k))
    yield "absent, key of the mirror", lambda h, e, k: sign(_coded(h, 100), mirror if k is not mirror else rsa_key())
    yield "absent, under the signature", lambda h, e, k: _under(_coded(h, 100), sign(h, k))
    yield "absent, another operation", lambda h, e, k: sign(_headed(_coded(h, 100), op_code=2), k)
    yield "absent, unsigned", lambda h, e, k: _coded(h, 100)
    yield "absent, replay of another name", lambda h, e, k: sign(replace(_coded(h, 100), digest=_EARLIER), k)
    yield "not responsible", lambda h, e, k: _coded(h, 301)
    yield "error without an id", lambda h, e, k: _enveloped(_headed(_coded(h, 4), op_code=0), request_id=NO_REQUEST_ID)
    yield "cut", lambda h, e, k: encode_response(sign(e, own))[:-40]
    yield "cut, length repaired", lambda h, e, k: _shortened(encode_response(sign(e, own)))
    yield "referral", lambda h, e, k: _headed(e, response_code=303)
    yield "authentication needed", lambda h, e, k: _coded(h, 402)
    yield (
        "referral, under the signature",
        lambda h, e, k: _under(_headed(_referring(e), response_code=303), sign(h, k)),
    )
    yield (
        "two credentials",
        lambda h, e, k: encode_response(_under(e, sign(h, k))) + encode_response(sign(e, own))[-99:],
    )
    yield "nothing after the body", lambda h, e, k: encode_response(sign(e, own))[:-4]


def _renamed_section(signed: Response) -> bytes:
    assert signed.credential is not None
    return signed.credential.section.replace(b"\0\0\0\7SHA-256", b"\0\0\0\4SHA1")


def _by_sha1(honest: Response) -> Digest:
    assert honest.digest is not None
    return Digest(2, hashlib.sha1(honest.digest.digest, usedforsecurity=False).digest())


def _without_digest(honest: Response, evil: Response, key: Key) -> Response:
    flags = honest.header.flags & ~OpFlag.REQUEST_DIGEST
    return sign(replace(_headed(evil, flags=flags), digest=None), key)


def _coded(answer: Response, code: int) -> Response:
    return replace(_headed(answer, response_code=code), body=AnswerText(b"" if code != 402 else b"n" * 16))


def _referring(answer: Response) -> Response:
    sites = [replace(value, type=b"HS_SITE.PREFIX") for value in _values(answer)]
    return replace(answer, body=Values(b"", tuple(sites)))


class _Forger(HandleServer):
    """A server behind a machine that forges its answers: the one about each name in a way of its own."""

    def __init__(self, evil: Value, **options: Any) -> None:
        super().__init__(transports=frozenset({"tcp"}), **options)
        self._evil = evil
        self.ways: dict[str, Forgery] = {}

    def _write(self, query: Query, data: bytes, content: Content, lie: str | None) -> bytes:
        way = self.ways.get(query.filters.handle.decode())
        if way is None:
            return super()._write(query, data, content, lie)
        honest = self._make_answer(query, data, content)
        evil = replace(honest, body=Values(query.filters.handle, (self._evil,)))
        sent = way(honest, evil, self.key)
        return encode_response(sent) if isinstance(sent, Response) else sent


@asynccontextmanager
async def _forging(
    folder: Path, at: str, ways: Iterable[Forgery], **settings: str
) -> AsyncIterator[tuple[Proxy, HandleServer]]:
    """A proxy, and the evil server. Each way is that of 10.7000/x, 10.7001/x and so on."""
    async with AsyncExitStack() as stack:
        evil = await stack.enter_async_context(HandleServer(key=other_dsa_key()))
        root = await stack.enter_async_context(_Forger(evil.site_value(), key=rsa_key()))
        home = await stack.enter_async_context(_Forger(Value(1, b"URL", _EVIL.encode()), key=dsa_key()))
        for number, way in enumerate(ways, 7_000):
            root.put_values(f"0.NA/10.{number}", home.site_value())
            home.put(f"10.{number}/x", url=_HOME)
            evil.put(f"10.{number}/x", url=_EVIL)
            forged, name = (root, f"0.NA/10.{number}") if at == "root" else (home, f"10.{number}/x")
            forged.ways[name] = way
        (folder / "root.json").write_bytes(write_bootstrap(root))
        # A timeout would be another answer.
        usual = {"upstream_bootstrap": folder / "root.json", "upstream_private_servers": True, "upstream_timeout": LONG}
        yield await stack.enter_async_context(Proxy(**usual, **settings, upstream_url="hdl:")), evil


@pytest.mark.parametrize("at", ["root", "server"])
@pytest.mark.parametrize(
    ("verify", "query"), [("lookups", "?cert"), ("when-asked", "?cert"), ("always", ""), ("never", "")]
)
async def test_no_forged_answer_steers_a_name_denies_it_or_is_verified(
    tmp_path: Path, at: str, verify: str, query: str
) -> None:
    forgeries, steered, others = dict(_forgeries()), 0, []
    assert len(forgeries) == 63
    async with _forging(tmp_path, at, forgeries.values(), upstream_verify=verify) as (proxy, evil):
        for number, name in enumerate(forgeries, 7_000):
            got = await proxy.get(f"/10.{number}/x{query}")
            steered += got["location"] == _EVIL
            if got.status != 502:
                others.append((name, got.status, got["location"], got["cache-status"]))
    # The control: without signatures, a machine on the way is believed.
    expected = (True, True, at == "root") if verify == "never" else (False, False, False)
    assert (steered > 8, bool(others), evil.queries() > 0) == expected, others


async def test_by_default_no_forged_record_of_a_prefix_steers_an_unsigned_query(tmp_path: Path) -> None:
    forgeries = dict(_forgeries())
    async with _forging(tmp_path, "root", forgeries.values()) as (proxy, evil):
        assert [(await proxy.get(f"/10.{number}/x")).status for number in range(7_000, 7_063)] == [502] * 63
        assert evil.queries() == 0


async def test_a_true_answer_whose_time_is_over_is_verified(tmp_path: Path) -> None:
    """Its id and its digest say that it is new. A handle server whose clock is wrong must not be lost."""
    way: Forgery = lambda honest, _, key: sign(_headed(honest, expiration=1), key)  # noqa: E731
    async with _forging(tmp_path, "server", [way], upstream_verify="always") as (proxy, _):
        got = await proxy.get("/10.7000/x")
        assert (got["location"], got.status) == (_HOME, 302)
        assert "detail=verified" in str(got["cache-status"])
