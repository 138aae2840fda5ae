"""Messages over UDP (RFC 3652, section 2.3): packets of at most 512 bytes, of which any can be lost.

Each message has a socket of its own. The system chooses its port at random, so a forger must guess the port and the
request id (RFC 5452, section 9). The socket is connected: packets of other addresses do not arrive. A forged address
lets a packet in, so a packet counts only if it has the request id.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from handle_protocol import errors
from handle_protocol.site import Candidate, Endpoint
from handle_protocol.transport.stream import REQUEST_ID, translate_socket_error
from handle_protocol.wire.message import (
    ENVELOPE_BYTES,
    MAX_PACKET_BYTES,
    NO_REQUEST_ID,
    PacketBuffer,
    decode_envelope,
    split_message,
)
from handle_protocol.wire.site_value import U32, Address

#: Packets with another request id that are dropped for one message. Each takes about 2 us.
_MAX_STRANGERS: Final = 200_000
#: Seconds before a message is sent again, and how often it is sent: at 0, 0.5 and 1.5 s, as by the reference client.
FIRST_WAIT: Final = 0.5
TRIES: Final = 3
_NO_ID: Final = U32.pack(NO_REQUEST_ID)


class UdpTransport:
    """Sends each message from a new socket.

    After `first_wait` seconds of silence the message is sent again, `tries` times in all. Each wait is twice as long as
    the one before. After the last wait the message has failed. An address that has not answered yet gets one message at
    a time: anyone who has a prefix can name an address of a third party. The others wait for its answer.
    """

    def __init__(self, *, max_bytes: int, first_wait: float = FIRST_WAIT, tries: int = TRIES) -> None:
        self._waits = tuple(first_wait * 2**number for number in range(tries))
        self._max_bytes = max_bytes
        #: Addresses that answered. The oldest one is forgotten.
        self._answered: dict[Address, None] = {}
        #: The port of the message that is under way to an address that has not answered, and how it fails or None.
        self._first: dict[Address, tuple[int, asyncio.Future[errors.HandleProtocolError | None]]] = {}

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """See Transport."""
        endpoint = candidate.endpoint
        address, failure = endpoint.address, None
        while address not in self._answered and address in self._first:
            port, first = self._first[address]
            failure = await asyncio.shield(first)
            if failure is not None and port == endpoint.port and address not in self._answered:
                raise failure.with_traceback(None)
        if address in self._answered:
            return await self._exchange(endpoint, message)
        failure, first = None, asyncio.get_running_loop().create_future()
        self._first[address] = endpoint.port, first
        try:
            return await self._exchange(endpoint, message)
        except errors.HandleProtocolError as error:
            failure = error
            raise
        finally:
            del self._first[address]
            first.set_result(failure)

    async def aclose(self) -> None:
        """See Transport."""

    async def _exchange(self, endpoint: Endpoint, message: bytes) -> bytes:
        try:
            transport, packets = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Packets(decode_envelope(message).request_id, self._max_bytes),
                remote_addr=(str(endpoint.address), endpoint.port),
            )
        except OSError as error:
            raise translate_socket_error(error) from error
        try:
            # A server sends all packets of an answer in one burst: 613 for 300 kB. The system may grant less, so this
            # needs no setting.
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024 * 1024)
            return await self._send_until_answered(transport, packets, split_message(message), endpoint.address)
        finally:
            transport.abort()

    async def _send_until_answered(
        self, transport: asyncio.DatagramTransport, packets: _Packets, parts: list[bytes], address: Address
    ) -> bytes:
        for seconds in self._waits:
            for part in parts:
                transport.sendto(part)
            await asyncio.wait({packets.message}, timeout=seconds)
            if packets.is_answered and address not in self._answered:
                if len(self._answered) >= 10_000:
                    del self._answered[next(iter(self._answered))]
                self._answered[address] = None
            if packets.message.done():
                return packets.message.result()
            if packets.refusal is not None:
                return packets.refusal
            if packets.has_part:
                # The server repeats no packet, and a second answer can differ from the first in its time.
                raise errors.ServerTimeout("Packets of the handle server's answer were lost.")
        raise errors.ServerTimeout("The handle server did not answer in time.")


class _Packets(asyncio.DatagramProtocol):
    """The packets of one answer. `message` is set once all have arrived."""

    def __init__(self, request_id: int, max_bytes: int) -> None:
        self.message: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        #: Whether some packets arrived, and not all.
        self.has_part = False
        #: Whether a packet with the request id arrived.
        self.is_answered = False
        #: An answer without the request id: the server could not read the request. Anyone can forge it, so it counts
        #: only if the answer does not come.
        self.refusal: bytes | None = None
        self._request_id = U32.pack(request_id)
        self._strangers_left = _MAX_STRANGERS
        self._buffer = PacketBuffer(max_bytes)
        # Packets with the request id that are read for one message, as a multiple of those that the largest answer has.
        # Copies arrive too.
        self._packets_left = 4 * (max_bytes // (MAX_PACKET_BYTES - ENVELOPE_BYTES) + 1)

    def datagram_received(self, data: bytes, _: object) -> None:
        """See asyncio.DatagramProtocol."""
        if self.message.done():
            return
        if data[REQUEST_ID] != self._request_id or len(data) < ENVELOPE_BYTES:
            self._drop(data)
            return
        self.is_answered = True
        self._packets_left -= 1
        if self._packets_left < 0:
            self._fail(errors.MalformedMessage(detail="the handle server sends more packets than its answer can have"))
            return
        try:
            message = self._buffer.add(data)
        except errors.UnusableAnswer as error:
            self._fail(error)
            return
        self.has_part = message is None
        if message is not None:
            self.message.set_result(message)

    def error_received(self, error: Exception) -> None:
        """See asyncio.DatagramProtocol. An ICMP message: the port is closed, or the host cannot be reached."""
        self._fail(translate_socket_error(error))

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.DatagramProtocol."""
        if not self.message.done():
            self.message.cancel()
        elif not self.message.cancelled():
            self.message.exception()  # without this, asyncio reports an error that no caller is left to see

    def _drop(self, data: bytes) -> None:
        self._strangers_left -= 1
        if self._strangers_left < 0:
            self._fail(errors.MalformedMessage(detail=f"over {_MAX_STRANGERS} packets with another request id arrived"))
        elif self.refusal is None and len(data) >= ENVELOPE_BYTES and data[REQUEST_ID] == _NO_ID:
            self.refusal = data

    def _fail(self, error: errors.HandleProtocolError) -> None:
        if not self.message.done():
            self.message.set_exception(error)
