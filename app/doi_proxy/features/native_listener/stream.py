"""One TCP connection of the listener: one message and its answer, or HTTP if the first byte is that of a method."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from doi_proxy.features.native_listener.messages import MAX_REQUEST_BYTES, HandleRequest, read_request, write_unreadable
from doi_proxy.features.native_listener.responder import Peer, Responder
from doi_proxy.server.connections import Connections, Phase, Reason
from handle_protocol.errors import MalformedMessage
from handle_protocol.wire.message import ENVELOPE_BYTES, decode_envelope

#: The first byte of the method of HTTP. A message begins with its major version.
_FIRST_LETTER: Final = ord("A")


class ServerState(Protocol):
    """The open connections and the tasks of uvicorn's server, which it ends at a shutdown."""

    connections: set[Any]
    tasks: set[Any]


class NativeStream(asyncio.Protocol):
    """See doi_proxy.server.connections.Connection, and the module. `create_http` makes the protocol of the tunnel."""

    def __init__(
        self,
        responder: Responder,
        connections: Connections,
        state: ServerState,
        create_http: Callable[[], Any],
    ) -> None:
        self._responder = responder
        self._connections = connections
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
        if self._data[0] >= _FIRST_LETTER:
            self._hand_over()
        elif len(self._data) >= ENVELOPE_BYTES:
            length = decode_envelope(bytes(self._data[:ENVELOPE_BYTES])).message_length + ENVELOPE_BYTES
            if length > MAX_REQUEST_BYTES:
                self._write(write_unreadable())
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
            request = read_request(data)
        except MalformedMessage:
            self._write(write_unreadable())
            return
        host, port, *_ = self._transport.get_extra_info("sockname")
        peer = Peer(self._client, host, port)
        answer = self._responder.answer_now(request, peer)
        if answer is not None:
            self._write(answer)
            return
        self._task = asyncio.get_running_loop().create_task(self._answer(request, peer))
        self._state.tasks.add(self._task)
        self._task.add_done_callback(self._state.tasks.discard)

    async def _answer(self, request: HandleRequest, peer: Peer) -> None:
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
