"""One TCP connection of the listener: one message and its answer, or HTTP if the first byte is that of a method."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, cast

from doi_proxy.features.native_listener import responder
from doi_proxy.server.connections import Connections, Phase, Reason
from doi_proxy.system.check import Service
from doi_proxy.system.eager import Rest, begin
from doi_proxy.web.request import Fields
from doi_proxy.web.request_path import client_of
from doi_proxy.web.responses import Receive, Scope, Send
from handle_protocol.errors import MalformedMessage
from handle_protocol.transport.stream import MESSAGE
from handle_protocol.wire.message import ENVELOPE_BYTES, MAX_PACKET_BYTES, OpCode, OpFlag, decode_envelope

#: Answers to one network in any second. With MAX_PACKET_BYTES, a forged sender gets 2.5 kB a second.
MAX_ANSWERS: Final = 5
#: Networks that can have answers in one second. Packets of further ones are dropped.
MAX_NETWORKS: Final = 4_096
#: Answers that wait for a query.
MAX_WAITING: Final = 64


class AnswerLimit:
    """At most MAX_ANSWERS to a network in any second. `now` is in seconds of a monotonic clock."""

    def __init__(self) -> None:
        #: The times of the last answers, oldest first, by network. The network with the oldest last answer is first.
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def admit(self, network: str, now: float) -> bool:
        """Count an answer to a network. False if it may have none now."""
        while self._times and next(iter(self._times.values()))[-1] <= now - 1:
            self._times.popitem(last=False)
        times = self._times.get(network)
        if times is None:
            if len(self._times) >= MAX_NETWORKS:
                return False
            times = self._times[network] = deque(maxlen=MAX_ANSWERS)
        elif len(times) == MAX_ANSWERS and times[0] > now - 1:
            return False
        times.append(now)
        self._times.move_to_end(network)
        return True


class NativeDatagrams(asyncio.DatagramProtocol):
    """The socket for UDP: a request in one packet, an answer in one packet. All others are dropped."""

    def __init__(self, responder: responder.Responder, host: str, port: int, timer: Callable[[], float]) -> None:
        """`host` and `port` are those of the socket. `timer` is monotonic."""
        self._responder = responder
        self._host = host
        self._port = port
        self._timer = timer
        self._limit = AnswerLimit()
        self._waiting: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        for task in self._waiting:
            task.cancel()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """A packet of a client, or of a sender who forges its address."""
        is_forgeable = not ip_address(addr[0].partition("%")[0]).is_loopback
        is_limited = is_forgeable and not self._responder.is_exempt(addr[0])
        # The IPv6 networks that count, in bits of their prefix: those that a provider gives to one customer.
        if is_limited and not self._limit.admit(client_of(addr[0], 56), self._timer()):
            self._responder.count("dropped")
            return
        try:
            request = responder.read_request(data)
        except MalformedMessage:
            self._responder.count("dropped")
            return
        peer = responder.Peer(addr[0], self._host, self._port, is_forgeable)
        bypasses = request.has(OpFlag.AUTHORITATIVE) or request.has(OpFlag.CERTIFIED)
        # At an unspecified address, the socket does not know which address the client used.
        is_unknown = request.op_code == OpCode.SITE_INFORMATION and ip_address(self._host).is_unspecified
        # What bypasses the cache is charged to the network of the client, by TCP alone if the address can be forged.
        if (
            request.message.envelope.is_part
            or is_unknown
            or (bypasses and peer.is_forgeable)
            or (len(self._waiting) >= MAX_WAITING and not self._responder.is_known(request))
        ):
            self._responder.count("dropped")
        elif isinstance(rest := begin(self._answer(request, peer, addr)), Rest):
            task = asyncio.get_running_loop().create_task(rest.finish())
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _answer(self, request: responder.HandleRequest, peer: responder.Peer, address: Any) -> None:
        self._send(await self._responder.answer(request, peer), address)

    def _send(self, answer: bytes, address: Any) -> None:
        # A handle server would send several packets: more than the forged sender of one should get.
        if len(answer) <= MAX_PACKET_BYTES:
            self._transport.sendto(answer, address)
        else:
            self._responder.count("dropped")


class NativeStream(asyncio.Protocol):
    """See doi_proxy.server.connections.Connection, and the module. `create_http` makes the protocol of the tunnel."""

    def __init__(
        self,
        responder: responder.Responder,
        connections: Connections,
        state: Any,
        create_http: Callable[[], Any],
    ) -> None:
        self._responder = responder
        self._connections = connections
        #: The open connections and the tasks of uvicorn's server, which it ends at a shutdown.
        self._state = state
        self._create_http = create_http
        self.since = self.body_since = 0.0
        self._data = bytearray()
        self._is_answering = self._has_eof = self._ended = False
        self._task: asyncio.Task[None] | None = None
        self._reason = Reason.CLIENT
        #: Written bytes that were unsent at the last sweep, and the last time their number fell.
        self._unsent, self._unsent_since = 0, 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._state.connections.add(self)
        # A peer that has reset its connection before it was accepted has no address, and reads no answer.
        self._client: str = (transport.get_extra_info("peername") or ("",))[0]
        is_admitted = self._connections.admit(self, self._client, asyncio.get_running_loop())
        if not self._client:
            self.expire(Reason.CLIENT)
        elif not is_admitted:
            self._end(Reason.REFUSED)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._ended = True
        if self._task is not None:
            self._task.cancel()
        self._state.connections.discard(self)
        self._connections.remove(self, self._reason)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        if self._ended:
            return
        if self._is_answering:
            # One message has one answer. Without a byte more, reading goes on: it notices a client that goes away.
            self._transport.pause_reading()
            return
        self._data += data
        # The first byte of the method of HTTP. A message begins with its major version.
        if self._data[0] >= ord("A"):
            self._hand_over()
        elif len(self._data) >= ENVELOPE_BYTES:
            length = decode_envelope(bytes(self._data[:ENVELOPE_BYTES])).message_length + ENVELOPE_BYTES
            if length > responder.MAX_REQUEST_BYTES:
                self._write(responder.write_unreadable())
            elif len(self._data) >= length:
                self._respond(bytes(self._data[:length]))

    def eof_received(self) -> bool:
        """The client has closed its sending side. It still gets the answer that is due."""
        self._has_eof = True
        return self._is_answering and not self._ended

    def _hand_over(self) -> None:
        """Let the protocol of HTTP have the connection, and the time that it has used."""
        self._connections.forget(self)
        self._state.connections.discard(self)
        http = self._create_http()
        self._transport.set_protocol(http)
        http.connection_made(self._transport)
        http.since = self.since
        http.data_received(bytes(self._data))

    def _respond(self, data: bytes) -> None:
        self._is_answering = True
        try:
            request = responder.read_request(data)
        except MalformedMessage:
            self._write(responder.write_unreadable())
            return
        host, port, *_ = self._transport.get_extra_info("sockname")
        peer = responder.Peer(self._client, host, port)
        rest = begin(self._answer(request, peer))
        if isinstance(rest, Rest):
            self._task = asyncio.get_running_loop().create_task(rest.finish())
            self._state.tasks.add(self._task)
            self._task.add_done_callback(self._state.tasks.discard)

    async def _answer(self, request: responder.HandleRequest, peer: responder.Peer) -> None:
        self._write(await self._responder.answer(request, peer))

    def _write(self, answer: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(answer)
            self._end(Reason.FINISHED)

    def _end(self, reason: Reason) -> None:
        """End the connection after the bytes that are written.

        Only the sending side is closed: TCP resets a connection with unread bytes, and the answer could be lost.
        """
        self._ended, self._reason, self.since = True, reason, self._connections.now
        try:
            if reason is Reason.FINISHED and not (self._has_eof or self._transport.is_closing()):
                self._transport.write_eof()
                self._transport.resume_reading()
                return
        except OSError:
            pass  # the client is gone
        self._transport.close()

    def disable_shortcuts(self) -> None:
        """Every connection ends after its answer."""

    def shutdown(self) -> None:
        """End the connection after the answer that is due."""
        if not self._is_answering or self._ended:
            self._transport.close()

    def phase(self, now: float) -> tuple[Phase, float]:
        """See doi_proxy.server.connections.Connection."""
        unsent, before = self._transport.get_write_buffer_size(), self._unsent
        self._unsent = unsent
        if unsent:
            if not before or unsent < before:
                self._unsent_since = now
            return Phase.WRITE, self._unsent_since
        if self._ended:
            return Phase.CLOSING, self.since
        if self._is_answering:
            return Phase.LEFT if self._has_eof else Phase.ANSWER, self.since
        return (Phase.HEAD if self._data else Phase.NEW), self.since

    def expire(self, reason: Reason) -> None:
        """See doi_proxy.server.connections.Connection."""
        if reason is not Reason.FINISHED:
            self._reason = reason
        if self._ended and not self._transport.get_write_buffer_size():
            self._transport.close()  # the system sends the rest of the answer
        else:
            self._ended = True
            self._transport.abort()


_TEXT: Final = b"text/plain; charset=utf-8"


class Tunnel:
    """Answers messages by HTTP. `connections` are the server's; see doi_proxy.server.protocol."""

    #: A tunnel has no prepared answers.
    prepared: None = None
    #: The pages of this resolver are not at this port.
    base: Final = ""

    def __init__(self, responder: responder.Responder, connections: object) -> None:
        self._responder = responder
        self.connections = connections

    def begin(self, scope: Any, default_headers: bytes, fields: Fields | None) -> None:
        """A message has a body, so it takes a task."""
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application (asgi.readthedocs.io, HTTP & WebSocket 2.4)."""
        kinds = [value for name, value in scope["headers"] if name == b"content-type"]
        kind = kinds[0].partition(b";")[0].strip().lower() if kinds else b""
        if scope["method"] != "POST":
            text = b"This port speaks the native Handle protocol; send a message by POST.\n"
            await _send(send, 405, _TEXT, text, (b"allow", b"POST"))
        elif kind != MESSAGE.encode():
            await _send(send, 415, _TEXT, b"The Content-Type of a message is application/x-hdl-message.\n")
        elif (data := await _read(receive)) is None:
            await _send(send, 413, _TEXT, b"The message is too large.\n")
        else:
            await _send(send, 200, kind, await self._answer(data, scope))

    async def _answer(self, data: bytes, scope: Scope) -> bytes:
        (client, _), (host, port) = scope["client"] or ("", 0), scope["server"]
        try:
            request = responder.read_request(data)
        except MalformedMessage:
            return responder.write_unreadable()
        return await self._responder.answer(request, responder.Peer(client, host, port))


async def _read(receive: Receive) -> bytes | None:
    """The body of a request, None if it is too large. It is empty if the client is gone."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > responder.MAX_REQUEST_BYTES:
            return None
        if not message.get("more_body"):
            return bytes(body)


async def _send(send: Send, status: int, kind: bytes, body: bytes, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


log = logging.getLogger(__name__)


class NativeListener(Service):
    """Serves the socket of `native_listen`."""

    def __init__(self, *, allows_udp: bool) -> None:
        self._allows_udp = allows_udp
        self._bound = asyncio.Event()
        self._address: Any = None

    def open(self, responder: responder.Responder, connections: Connections) -> NativeServer:
        """What the server of this process serves at the socket."""
        self._responder = responder
        return NativeServer(self, responder, connections)

    def use(self, address: Any) -> None:
        """The socket is bound, so UDP can begin, at the same port."""
        is_local = ip_address(address[0].partition("%")[0]).is_loopback
        self._responder.has_udp = is_local or self._allows_udp
        self._address = address
        self._bound.set()

    async def run(self) -> None:
        """Serve UDP until the end of the process."""
        await self._bound.wait()
        if not self._responder.has_udp:
            return
        host, port, *_ = self._address
        create = partial(NativeDatagrams, self._responder, host, port, time.monotonic)
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.create_datagram_endpoint(create, local_addr=(host, port))
        except OSError as error:
            log.error("the native listener has no UDP: port %d cannot be opened: %s", port, error)
            return
        try:
            await loop.create_future()  # until the end of the process
        finally:
            transport.close()


class NativeServer(Tunnel):
    """The application of the tunnel, with what serves the socket around it."""

    def __init__(self, listener: NativeListener, responder: responder.Responder, connections: Connections) -> None:
        super().__init__(responder, connections)
        self._listener = listener
        self._streams = partial(NativeStream, responder, connections)

    async def serve(self, listening: socket.socket, state: Any, create_http: Callable[[], Any]) -> Any:
        """Serve a bound socket. Returns the asyncio.Server."""
        # Connections that may wait to be accepted.
        server = await asyncio.get_running_loop().create_server(
            lambda: self._streams(state, create_http), sock=listening, backlog=2048
        )
        self._listener.use(listening.getsockname())
        return server
