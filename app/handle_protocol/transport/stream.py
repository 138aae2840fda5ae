"""Connections that carry one message at a time, and are used again while the server leaves them open."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, Protocol, TypeVar, cast

from handle_protocol import errors
from handle_protocol.errors import HandleProtocolError, ServerUnreachable
from handle_protocol.site import Candidate
from handle_protocol.wire.message import ENVELOPE_BYTES, decode_envelope

#: Where the request id is in an envelope.
REQUEST_ID: Final = slice(8, 12)


class Transport(Protocol):
    """Sends one message and receives one. The caller limits the time."""

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """The whole answer to a message about `handle`. Nothing in it is checked but its length.

        Raises HandleProtocolError. Cancelling it closes what it opened.
        """

    async def aclose(self) -> None:
        """Close the connections. The transport is not used afterwards."""


def has_id_of(message: bytes, answer: bytes) -> bool:
    """Whether an answer has the request id of a message."""
    return answer[REQUEST_ID] == message[REQUEST_ID]


def measure_message(head: bytes | bytearray) -> int:
    """The bytes of the whole message that begins with `head`, an envelope at least."""
    return ENVELOPE_BYTES + decode_envelope(bytes(head[:ENVELOPE_BYTES])).message_length


def refuse_long(answer: bytes, message: bytes, max_bytes: int) -> None:
    """Raise AnswerTooLarge if the answer to a message announces more than `max_bytes` after its envelope.

    Without the id of the message, the bytes are those of another protocol: MalformedMessage.
    """
    length = measure_message(answer) - ENVELOPE_BYTES
    if length <= max_bytes:
        return
    if has_id_of(message, answer):
        raise errors.AnswerTooLarge.over(max_bytes)
    raise errors.MalformedMessage(detail=f"envelope: the message length is {length}; the limit is {max_bytes}")


def translate_socket_error(error: Exception) -> errors.HandleProtocolError:
    """Translate the error of a socket."""
    if isinstance(error, TimeoutError):
        return errors.ServerTimeout("The handle server did not answer in time.")
    return errors.ServerUnreachable(detail=f"{type(error).__name__}: {error}"[:200])


Answer = TypeVar("Answer")
#: Idle connections that a pool keeps, and for how many seconds. Servers and firewalls that keep connections do so for a
#: minute or more.
MAX_IDLE: Final = 64
IDLE_TIMEOUT: Final = 30.0


class StreamConnection(asyncio.Protocol, Generic[Answer]):
    """A connection with at most one message under way. The end of the stream closes it.

    A subclass reads the answer in `receive`, and calls `finish` or `fail`.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        #: Bytes received since the last message was sent.
        self.received_bytes = 0
        self._answer: asyncio.Future[Answer] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_closed(self) -> bool:
        """Whether no message can be sent."""
        return self.transport is None or self.transport.is_closing()

    @property
    def is_waiting(self) -> bool:
        """Whether a message was sent that has no answer yet."""
        return self._answer is not None and not self._answer.done()

    async def exchange(self, message: bytes) -> Answer:
        """Send a message, and return the answer. Raises HandleProtocolError. The caller limits the time."""
        self._stop_timer()
        if self.transport is None or self.transport.is_closing():
            raise ServerUnreachable(detail="the handle server closed the connection")
        self.received_bytes = 0
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(message)
        try:
            return await self._answer
        finally:
            self._answer = None
            # An idle connection would keep the answer, which can be large.
            self.prepare()

    def prepare(self) -> None:
        """Forget the last answer."""

    def receive(self, data: bytes) -> None:
        """Read a part of the answer."""
        raise NotImplementedError

    def finish(self, answer: Answer) -> None:
        """End the message under way with its answer."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def fail(self, error: HandleProtocolError) -> None:
        """End the message under way with an error, and close the connection."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.close()

    def rest(self, seconds: float) -> None:
        """Close after some seconds without a message."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self.close)

    def close(self) -> None:
        """Close immediately."""
        self._stop_timer()
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        # Event loops have classes of their own, not always of this type.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self.is_waiting:
            self.received_bytes += len(data)
            self.receive(data)
        else:
            self.close()  # Nothing was requested.

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._stop_timer()
        self.transport = None
        reason = f"{type(error).__name__}: {error}" if error else f"closed after {self.received_bytes} bytes"
        self.fail(ServerUnreachable(detail=reason[:200]))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ConnectionPool(Generic[Answer]):
    """The idle connections of one process by their key. At most `most` are kept, each for `idle_timeout` seconds.

    `may_ask_again` is awaited before a message is sent a second time, which needs a token of the budget.
    """

    def __init__(
        self,
        *,
        may_ask_again: Callable[[], Awaitable[bool]],
        most: int = MAX_IDLE,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> None:
        self._most = most
        self._idle_timeout = idle_timeout
        self._may_ask_again = may_ask_again
        self._idle: OrderedDict[Hashable, list[StreamConnection[Answer]]] = OrderedDict()
        self._count = 0

    async def exchange(
        self,
        key: Hashable,
        connect: Callable[[], Awaitable[StreamConnection[Answer]]],
        message: bytes,
        *,
        belongs: Callable[[Answer], bool],
    ) -> Answer:
        """Send a message on an idle connection, or on a new one from `connect`. Raises HandleProtocolError.

        The connection is kept if the answer `belongs` to the message. Otherwise each answer could be that to the
        message before.
        """
        connection = self._take(key)
        if connection is not None:
            try:
                return await self._exchange(key, connection, message, belongs)
            except ServerUnreachable:
                # The server closed the connection while it was idle. It can have read the message, so the second
                # one needs a token. A server that began to answer gets no second message.
                if connection.received_bytes or not await self._may_ask_again():
                    raise
        return await self._exchange(key, await connect(), message, belongs)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            for connection in self._idle.popitem()[1]:
                connection.close()
        self._count = 0

    async def _exchange(
        self, key: Hashable, connection: StreamConnection[Answer], message: bytes, belongs: Callable[[Answer], bool]
    ) -> Answer:
        try:
            answer = await connection.exchange(message)
        except BaseException:
            connection.close()
            raise
        if not belongs(answer):
            connection.close()
        elif not connection.is_closed:
            self._keep(key, connection)
        return answer

    def _take(self, key: Hashable) -> StreamConnection[Answer] | None:
        """The connection that was used last: the server has closed it least likely."""
        connections = self._idle.get(key, [])
        while connections:
            connection = connections.pop()
            self._count -= 1
            if not connections:
                del self._idle[key]
            if not connection.is_closed:
                return connection
        return None

    def _keep(self, key: Hashable, connection: StreamConnection[Answer]) -> None:
        self._idle.setdefault(key, []).append(connection)
        self._idle.move_to_end(key)
        self._count += 1
        connection.rest(self._idle_timeout)
        if self._count > self._most:
            oldest, connections = next(iter(self._idle.items()))
            connections.pop(0).close()
            self._count -= 1
            if not connections:
                del self._idle[oldest]


class TcpTransport:
    """A connection for each message: most servers close it after the answer. `connect_timeout` is in seconds."""

    def __init__(self, *, connect_timeout: float, max_bytes: int) -> None:
        self._connect_timeout = connect_timeout
        self._max_bytes = max_bytes

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """See Transport."""
        endpoint = candidate.endpoint
        try:
            async with asyncio.timeout(self._connect_timeout):
                reader, writer = await asyncio.open_connection(str(endpoint.address), endpoint.port)
        except OSError as error:
            raise translate_socket_error(error) from error
        try:
            writer.write(message)
            head = await reader.readexactly(ENVELOPE_BYTES)
            refuse_long(head, message, self._max_bytes)
            return head + await reader.readexactly(measure_message(head) - ENVELOPE_BYTES)
        except asyncio.IncompleteReadError as error:
            raise ServerUnreachable(detail=f"closed after {len(error.partial)} bytes of a part") from error
        except OSError as error:
            raise translate_socket_error(error) from error
        finally:
            writer.transport.abort()

    async def aclose(self) -> None:
        """See Transport."""
