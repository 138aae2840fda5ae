"""A small handle server on loopback, over the codec of the program: UDP, TCP and the HTTP tunnel on one port number.

In a test:

    async with HandleServer() as server:
        server.put("10.1000/182", url="http://www.doi.org/hb.html")
        server.lie("10.1000/182", "digest")
        server.hold("10.1000/slow")          # is answered after release("10.1000/slow")
        ... query server.url, or 127.0.0.1:server.port ...

As a process: `python -m tests.handle_protocol.server --port N --records FILE.ndjson`, a record
{"handle": …, "values": …} a line, in the JSON of the handle API: the records of tests/fake_upstream.py. Names match
with ASCII letters of either case.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import signal
import ssl
from collections import Counter
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, cast

import msgspec
from cryptography.hazmat.primitives.asymmetric.dsa import DSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from msgspec import structs

from handle_protocol.json_sites import write_json_values
from handle_protocol.transport.stream import MESSAGE
from handle_protocol.wire.message import (
    ENVELOPE_BYTES,
    AnswerText,
    Digest,
    Envelope,
    Header,
    OpCode,
    OpFlag,
    PacketBuffer,
    Query,
    Response,
    ResponseStatus,
    Values,
    decode_envelope,
    decode_message,
    encode_header,
)
from handle_protocol.wire.site_value import (
    Interface,
    Purpose,
    Server,
    ServiceSite,
    TransportProtocol,
    Value,
    encode_site,
)
from tests.accepting import abort_all, accept_into, stop_accepting
from tests.handle_protocol.encoder import decode_query, encode_response
from tests.handle_protocol.keys import dsa_key, public_bytes, rsa_key, sign
from tests.handle_protocol.lies import LIES, Hangup, Silence, split_lie
from tests.handle_protocol.records import to_values

#: The name for a lie about all names that have no lie of their own.
EVERY_NAME: Final = ""
TRANSPORTS: Final = frozenset({"udp", "tcp", "http"})
_MAX_WAIT: Final = 10.0
#: Ports that are tried until one is free for TCP and UDP.
_PORTS: Final = 16
_LIMIT: Final = 262_144
_SHA256: Final = 3


@dataclass(frozen=True)
class Referral:
    """The content of a prefix that lives elsewhere."""

    values: tuple[Value, ...]


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Content = tuple[Value, ...] | Referral | int


class HandleServer:
    """See the module. `transports` are served; those in `mute` are read, and never answered, as by a firewall."""

    def __init__(
        self,
        port: int = 0,
        *,
        transports: frozenset[str] = TRANSPORTS,
        mute: frozenset[str] = frozenset(),
        key: RSAPrivateKey | DSAPrivateKey | None = None,
        serial: int = 1,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.port = port
        self.host = host
        self.tls = tls
        #: The port of HTTPS, if there is one.
        self.tls_port = 0
        #: What the server says about its site: by default, the truth. A number is a response code.
        self.site_information: ServiceSite | int | None = None
        self.site_queries = 0
        self.transports = transports
        self.mute = mute
        self.key = key or rsa_key()
        self.serial = serial
        self._records: dict[str, Content] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._held: dict[str, asyncio.Event] = {}
        self._lies: dict[str, str] = {}
        self._arrival = asyncio.Event()
        #: Datagrams that are lost before the next one is read.
        self.datagrams_lost = 0
        self.counts: Counter[str] = Counter()
        self.by_transport: Counter[str] = Counter()
        self.connections = self.in_flight = self.max_in_flight = 0
        self.flags: list[int] = []

    async def __aenter__(self) -> Self:
        await self._listen()
        if self.tls is not None:
            accept = accept_into(self._tasks, self._writers, self._serve)
            self._tls_server = await asyncio.start_server(accept, self.host, 0, limit=_LIMIT, ssl=self.tls)
            self.tls_port = self._tls_server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await stop_accepting(self._server)
        if self.tls is not None:
            await stop_accepting(self._tls_server)
        if "udp" in self.transports:
            self._datagrams.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        abort_all(self._writers)
        await self._server.wait_closed()

    async def _listen(self) -> None:
        """Listen by TCP and UDP. A free TCP port may be taken for UDP, so without a chosen port several are tried."""
        for remaining in reversed(range(_PORTS if self.port == 0 else 1)):
            accept = accept_into(self._tasks, self._writers, self._serve)
            server = await asyncio.start_server(accept, self.host, self.port, limit=_LIMIT, backlog=1024)
            port = server.sockets[0].getsockname()[1]
            try:
                if "udp" in self.transports:
                    self._datagrams, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                        lambda: _Datagrams(self), local_addr=(self.host, port)
                    )
            except OSError:
                server.close()
                if not remaining:
                    raise
            else:
                self._server, self.port = server, port
                return

    @property
    def url(self) -> str:
        """The setting that names this server."""
        return f"hdl://[{self.host}]:{self.port}" if ":" in self.host else f"hdl://{self.host}:{self.port}"

    # Records

    def put(self, name: str, values: list[dict[str, Any]] | None = None, *, url: str = "", ttl: int = 86_400) -> None:
        """Register a name, with values in the JSON of the handle API or with one URL value."""
        one = {"index": 1, "type": "URL", "data": {"format": "string", "value": url}, "ttl": ttl}
        self._records[_fold(name)] = to_values([one] if values is None else values)

    def put_values(self, name: str, *values: Value) -> None:
        """Register a name."""
        self._records[_fold(name)] = values

    def refer(self, prefix: str, *values: Value) -> None:
        """Answer all names under a prefix, and its prefix record, with a referral."""
        self._records[_fold(prefix)] = Referral(values)

    def delete(self, name: str) -> None:
        """Remove the record of a name."""
        self._records.pop(_fold(name), None)

    def site(self, **more: Any) -> ServiceSite:
        """The site of this server."""
        protocols = {"udp": TransportProtocol.UDP, "tcp": TransportProtocol.TCP, "http": TransportProtocol.HTTP}
        interfaces = tuple(Interface(Purpose.QUERY, protocols[name], self.port) for name in sorted(self.transports))
        if self.tls is not None:
            interfaces += (Interface(Purpose.QUERY, TransportProtocol.HTTPS, self.tls_port),)
        server = Server(1, ip_address(self.host).packed.rjust(16, b"\0"), public_bytes(self.key), interfaces)
        return replace(ServiceSite(self.serial, (server,)), **more)

    def site_value(self, value_type: bytes = b"HS_SITE", **more: Any) -> Value:
        """A value with the site of this server."""
        return Value(1, value_type, encode_site(self.site(**more)))

    # Faults

    def lie(self, name: str, kind: str) -> None:
        """Answer queries for a name (or EVERY_NAME) by a lie of LIES, or with "" by the truth again."""
        self._lies[_fold(name)] = next(lie for lie in ("", *LIES) if lie == kind)

    def hold(self, name: str) -> None:
        """Make queries for a name wait until `release`."""
        self._held[_fold(name)] = asyncio.Event()

    def release(self, name: str) -> None:
        """Answer the waiting queries for a name."""
        self._held.pop(_fold(name)).set()

    # Counts

    def queries(self, name: str | None = None) -> int:
        """The number of queries for a name, or for all names."""
        return self.counts.total() if name is None else self.counts[_fold(name)]

    async def arrived(self, name: str, count: int = 1) -> None:
        """Wait until `count` queries for a name have arrived."""
        async with asyncio.timeout(_MAX_WAIT):
            while self.queries(name) < count:
                self._arrival.clear()
                await self._arrival.wait()

    async def settle(self) -> None:
        """Wait until every connection is closed, and every datagram answered."""
        async with asyncio.timeout(_MAX_WAIT):
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # The server

    def start(self, work: Any) -> None:
        """Run a coroutine until the server ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def answer(self, data: bytes, transport: str) -> bytes:
        """The answer to the bytes of a request. Raises Silence and Hangup."""
        query = decode_query(data)
        if query.op_code == OpCode.SITE_INFORMATION:
            return self._write_site(query, data)
        name = query.filters.handle.decode("utf-8", "replace")
        self.counts[_fold(name)] += 1
        self.by_transport[transport] += 1
        self.flags.append(query.flags)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self._arrival.set()
        try:
            if transport in self.mute:
                raise Silence
            if held := self._held.get(_fold(name)):
                await held.wait()
            content, lie = await self.find(name, query)
            return self._write(query, data, content, lie)
        finally:
            self.in_flight -= 1

    async def find(self, name: str, query: Query) -> tuple[Content, str | None]:
        """What is known about a name, and the lie about it."""
        lie = self._lies.get(_fold(name)) or self._lies.get(EVERY_NAME) or None
        content = self._records.get(_fold(name), 100)
        prefix = _fold(name).removeprefix("0.NA/").partition("/")[0]
        while content == 100 and prefix:
            if isinstance(referral := self._records.get(prefix), Referral):
                return referral, lie
            prefix = prefix.rpartition(".")[0]
        return content, lie

    def _write_site(self, query: Query, data: bytes) -> bytes:
        self.site_queries += 1
        about = self.site() if self.site_information is None else self.site_information
        answer = self._make_answer(query, data, about if isinstance(about, int) else 100)
        if isinstance(about, ServiceSite):
            answer = replace(answer, header=structs.replace(answer.header, response_code=1), body=about)
        return encode_response(answer)

    def _write(self, query: Query, data: bytes, content: Content, lie: str | None) -> bytes:
        answer = self._make_answer(query, data, content)
        sent = answer if lie is None else LIES[lie](answer)
        if isinstance(sent, Response):
            if query.flags & OpFlag.CERTIFIED and lie != "unsigned":
                sent = sign(sent, dsa_key() if lie == "other-key" else self.key)
                if lie == "signature":
                    sent = replace(sent, envelope=structs.replace(sent.envelope, flags=sent.envelope.flags ^ 1))
            sent = encode_response(sent)
        return sent

    def _make_answer(self, query: Query, data: bytes, content: Content) -> Response:
        request, handle = decode_message(data), query.filters.handle
        header = Header(query.op_code, 1, query.flags, self.serial, query.expiration)
        digest = None
        if query.flags & OpFlag.REQUEST_DIGEST:
            signed = encode_header(request.header, request.body) + request.body
            digest = Digest(_SHA256, hashlib.sha256(signed).digest())
        body: Values | AnswerText
        match content:
            case int(code):
                header, body = structs.replace(header, response_code=code), AnswerText(None)
            case Referral(values):
                header = structs.replace(header, response_code=ResponseStatus.PREFIX_REFERRAL)
                body = Values(b"", values)
            case values:
                values = _select(values, query)
                body = Values(handle, values) if values else AnswerText(None)
                if not values:
                    header = structs.replace(header, response_code=ResponseStatus.VALUES_NOT_FOUND)
        return Response(Envelope(query.request_id), header, body, digest)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            start = await reader.readexactly(4)
            if start == b"GET ":
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 15\r\n\r\nA handle server")
            elif start == b"POST":
                await self._serve_tunnel(reader, writer)
            elif "tcp" in self.transports:
                await self._serve_messages(start, reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass

    async def _serve_messages(self, start: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = start + await reader.readexactly(ENVELOPE_BYTES - len(start))
        data = head + await reader.readexactly(min(decode_envelope(head).message_length, _LIMIT))
        await self._send(data, "tcp", (reader, writer), lambda answer: answer)

    async def _serve_tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while "http" in self.transports:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = next(int(line[15:]) for line in head.splitlines() if line.startswith("content-length:"))
            transport = "https" if writer.get_extra_info("ssl_object") else "http"
            if not await self._send(await reader.readexactly(length), transport, (reader, writer), _wrap):
                return

    async def _send(self, data: bytes, transport: str, streams: Streams, wrap: Any) -> bool:
        """Answer one request. Returns whether another may follow."""
        reader, writer = streams
        try:
            writer.write(wrap(await self.answer(data, transport)))
        except Silence:
            await reader.read()  # until the client closes the connection
            return False
        except Hangup as hangup:
            writer.write(hangup.data)
            await writer.drain()
            return False
        await writer.drain()
        return True


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: HandleServer) -> None:
        self._server = server
        self._buffers: dict[tuple[Any, int], PacketBuffer] = {}
        #: The questions that are not answered yet.
        self._answering: set[tuple[Any, int]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.DatagramProtocol."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, address: Any) -> None:
        """See asyncio.DatagramProtocol."""
        if self._server.datagrams_lost:
            self._server.datagrams_lost -= 1
            return
        key = address, decode_envelope(data).request_id
        if key in self._answering:
            return  # The same question again.
        buffer = self._buffers.setdefault(key, PacketBuffer(_LIMIT))
        message = buffer.add(data)
        if message is not None:
            del self._buffers[key]
            self._answering.add(key)
            self._server.start(self._answer(message, address))

    async def _answer(self, message: bytes, address: Any) -> None:
        try:
            packets = split_lie(await self._server.answer(message, "udp"))
        except Silence:
            return
        except Hangup as hangup:
            packets = split_lie(hangup.data) if hangup.data else []
        finally:
            self._answering.discard((address, decode_envelope(message).request_id))
        for number, packet in enumerate(packets):
            self._transport.sendto(packet, address)
            if number % 100 == 99:
                await asyncio.sleep(0)


def _select(values: tuple[Value, ...], query: Query) -> tuple[Value, ...]:
    """The values that the filters select. The two filters form a union."""
    wanted = query.filters
    if not wanted.types and not wanted.indexes:
        return values
    types = {name.upper() for name in wanted.types}
    return tuple(value for value in values if value.type.upper() in types or value.index in wanted.indexes)


def _wrap(message: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {MESSAGE}\r\nContent-Length: {len(message)}\r\n\r\n".encode() + message


def _fold(name: str) -> str:
    return "".join(letter.upper() if letter.isascii() else letter for letter in name)


async def run(server: HandleServer) -> None:
    """Serve until SIGTERM or SIGINT."""
    async with server:
        print(server.url, flush=True)
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await ended.wait()


def write_bootstrap(server: HandleServer) -> bytes:
    """A bootstrap file whose root is this server."""
    values = msgspec.Raw(write_json_values([server.site_value()]))
    return msgspec.json.encode({"responseCode": 1, "handle": "0.NA/0.NA", "values": values})


def load(server: HandleServer, path: Path) -> None:
    """Register the records of a file, one a line."""
    for line in filter(str.strip, path.read_text("utf-8").splitlines()):
        record = json.loads(line)
        server.put(record["handle"], record["values"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A handle server on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--records", type=Path, action="append", default=[], help="NDJSON, one record a line")
    parser.add_argument("--bootstrap", type=Path, help="is written: the file for upstream_bootstrap; needs --port")
    chosen = parser.parse_args()
    native = HandleServer(chosen.port)
    if chosen.bootstrap is not None:
        chosen.bootstrap.write_bytes(write_bootstrap(native))
    for records in chosen.records:
        load(native, records)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(native))
