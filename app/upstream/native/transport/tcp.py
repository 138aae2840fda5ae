"""Messages over TCP (RFC 3652, section 2.3). A connection is used again if the server leaves it open."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import cast

from app.errors import CouldNotVerify, UpstreamUnreachable
from app.upstream.native.site import Candidate, Endpoint
from app.upstream.native.transport.base import measure_message, translate_socket_error
from app.upstream.native.wire.envelope import ENVELOPE_BYTES


class TcpTransport:
    """One connection for each message that is under way. Timeouts are in seconds.

    At most `max_idle` idle connections are kept, each for `idle_timeout`. Most servers close theirs after each answer.
    """

    def __init__(self, *, connect_timeout: float, max_bytes: int, max_idle: int, idle_timeout: float) -> None:
        self._connect_timeout = connect_timeout
        self._max_bytes = max_bytes
        self._max_idle = max_idle
        self._idle_timeout = idle_timeout
        self._idle: OrderedDict[Endpoint, _Connection] = OrderedDict()

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """See Transport."""
        endpoint = candidate.endpoint
        connection = self._idle.pop(endpoint, None)
        if connection is not None and not connection.is_closed:
            try:
                return await self._exchange(endpoint, connection, message)
            except UpstreamUnreachable:
                pass  # The server closed the connection while it was idle, so it did not answer this message.
        return await self._exchange(endpoint, await self._connect(endpoint), message)

    async def aclose(self) -> None:
        """See Transport."""
        while self._idle:
            self._idle.popitem()[1].close()

    async def _connect(self, endpoint: Endpoint) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._max_bytes), str(endpoint.address), endpoint.port
                )
        except OSError as error:
            raise translate_socket_error(error) from error
        return connection

    async def _exchange(self, endpoint: Endpoint, connection: _Connection, message: bytes) -> bytes:
        try:
            answer = await connection.exchange(message)
        except BaseException:
            connection.close()
            raise
        self._keep(endpoint, connection)
        return answer

    def _keep(self, endpoint: Endpoint, connection: _Connection) -> None:
        """Keep a connection for the next message, one for each endpoint."""
        if connection.is_closed or endpoint in self._idle:
            connection.close()
            return
        self._idle[endpoint] = connection
        connection.rest(self._idle_timeout)
        if len(self._idle) > self._max_idle:
            self._idle.popitem(last=False)[1].close()


class _Connection(asyncio.Protocol):
    """A connection with at most one message under way. The end of the stream closes it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_closed(self) -> bool:
        """Whether no message can be sent."""
        return self._transport is None or self._transport.is_closing()

    async def exchange(self, message: bytes) -> bytes:
        """Send a message, and return the answer. Raises CouldNotVerify."""
        self._stop_timer()
        if self._transport is None or self._transport.is_closing():
            raise UpstreamUnreachable(detail="the handle server closed the connection")
        self._received.clear()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        try:
            return await self._answer
        finally:
            self._answer = None

    def rest(self, seconds: float) -> None:
        """Close after some seconds without a message."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self.close)

    def close(self) -> None:
        """Close at once."""
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        # Event loops have classes of their own, not always of this type.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._answer is None or self._answer.done():
            self.close()  # Nothing was requested.
            return
        self._received += data
        if len(self._received) < ENVELOPE_BYTES:
            return
        try:
            length = measure_message(self._received, self._max_bytes)
        except CouldNotVerify as error:
            self._fail(error)
            return
        if len(self._received) >= length:
            self._answer.set_result(bytes(self._received[:length]))
            if len(self._received) > length:
                self.close()

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._stop_timer()
        self._transport = None
        reason = f"{type(error).__name__}: {error}" if error else f"closed after {len(self._received)} bytes"
        self._fail(UpstreamUnreachable(detail=reason[:200]))

    def _fail(self, error: CouldNotVerify) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
