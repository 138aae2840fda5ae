"""Messages over TCP (RFC 3652, section 2.3). A connection is used again if the server leaves it open."""

from __future__ import annotations

import asyncio

from handle_protocol.site import Candidate, Endpoint
from handle_protocol.transport.base import has_id_of, measure_message, refuse_long, translate_socket_error
from handle_protocol.transport.stream import ConnectionPool, StreamConnection
from handle_protocol.wire.message import ENVELOPE_BYTES


class TcpTransport:
    """One connection for each message that is under way. `connect_timeout` is in seconds.

    Most servers close the connection after each answer, so few are kept.
    """

    def __init__(self, pool: ConnectionPool[bytes], *, connect_timeout: float, max_bytes: int) -> None:
        self._pool = pool
        self._connect_timeout = connect_timeout
        self._max_bytes = max_bytes

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """See Transport."""
        endpoint = candidate.endpoint
        answer = await self._pool.exchange(
            endpoint, lambda: self._connect(endpoint), message, belongs=lambda answer: has_id_of(message, answer)
        )
        refuse_long(answer, message, self._max_bytes)
        return answer

    async def aclose(self) -> None:
        """See Transport."""
        self._pool.close()

    async def _connect(self, endpoint: Endpoint) -> StreamConnection[bytes]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._max_bytes), str(endpoint.address), endpoint.port
                )
        except OSError as error:
            raise translate_socket_error(error) from error
        return connection


class _Connection(StreamConnection[bytes]):
    """Reads the answer: an envelope, and as many bytes as it announces. Of one that is too long, only the start."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._received = bytearray()

    def prepare(self) -> None:
        """See StreamConnection."""
        self._received.clear()

    def receive(self, data: bytes) -> None:
        """See StreamConnection."""
        self._received += data
        if len(self._received) < ENVELOPE_BYTES:
            return
        length = measure_message(self._received)
        is_too_long = length - ENVELOPE_BYTES > self._max_bytes
        if is_too_long or len(self._received) >= length:
            self.finish(bytes(self._received[:length]))
            if is_too_long or len(self._received) > length:
                self.close()
