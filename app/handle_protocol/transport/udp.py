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

#: Addresses that are remembered of each kind. Beyond that, the oldest one that answered is a stranger again, and
#: a new one waits.
_MOST: Final = 10_000


class Strangers:
    """One packet per `interval` seconds goes to an address until it answers. Times are arguments, in seconds."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._answered: dict[Address, None] = {}
        #: When the next packet may be sent, and what is set at the answer to the last one.
        self._waiting: dict[Address, tuple[float, asyncio.Event]] = {}
        #: Until when a port counts as closed: the next packet to its address is sent then.
        self._closed: dict[tuple[Address, int], float] = {}

    def may_send(self, address: Address, packets: int, now: float) -> bool:
        """Whether a message of so many packets may be sent now. If so, it counts as sent."""
        if address in self._answered:
            return True
        next_at, answer = self._waiting.get(address, (now, asyncio.Event()))
        if now < next_at:
            return False
        if len(self._waiting) >= _MOST:
            self._waiting = {waiting_address: wait for waiting_address, wait in self._waiting.items() if now < wait[0]}
        if len(self._waiting) >= _MOST:
            return False
        self._waiting[address] = now + packets * self._interval, answer
        return True

    def record_answer(self, address: Address) -> None:
        """A packet with the request id came back, so messages that wait may be sent."""
        _, answer = self._waiting.pop(address, (0.0, None))
        if answer is not None:
            answer.set()
        if address not in self._answered and len(self._answered) >= _MOST:
            del self._answered[next(iter(self._answered))]
        self._answered[address] = None

    def record_refusal(self, address: Address, port: int, now: float) -> None:
        """The system says that a port is closed. Messages to it that wait, and further ones, need not wait."""
        next_at, answer = self._waiting.get(address, (now, asyncio.Event()))
        if len(self._closed) >= _MOST:
            self._closed = {closed_port: until for closed_port, until in self._closed.items() if now < until}
        if now < next_at and len(self._closed) < _MOST:
            self._closed[address, port] = next_at
            self._waiting[address] = next_at, asyncio.Event()
            answer.set()

    def is_closed(self, address: Address, port: int, now: float) -> bool:
        """Whether a port refused the last packet, and the next one may not be sent yet."""
        return bool(self._closed) and now < self._closed.get((address, port), now)

    async def wait_for_answer(self, address: Address, message: asyncio.Future[bytes], seconds: float) -> None:
        """Wait until the address has answered or refused this message or another one, or so many seconds."""
        _, answer = self._waiting.get(address, (0.0, asyncio.Event()))
        other: asyncio.Future[bool] = asyncio.ensure_future(answer.wait())
        try:
            await asyncio.wait((message, other), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            other.cancel()


#: Packets with another request id that are dropped for one message. Each takes about 2 us.
_MAX_STRANGERS: Final = 200_000
#: Seconds before a message is sent again, and how often it is sent: at 0, 0.5 and 1.5 s, as by the reference client.
FIRST_WAIT: Final = 0.5
TRIES: Final = 3
_NO_ID: Final = U32.pack(NO_REQUEST_ID)


class UdpTransport:
    """Sends each message from a new socket.

    After `first_wait` seconds of silence the message is sent again, `tries` times in all. Each wait is twice as long as
    the one before. After the last wait the message has failed. An address that has not answered yet gets one packet in
    two first waits, whatever the number of messages; the others wait for its answer.
    """

    def __init__(self, *, max_bytes: int, first_wait: float = FIRST_WAIT, tries: int = TRIES) -> None:
        self._waits = tuple(first_wait * 2**number for number in range(tries))
        self._max_bytes = max_bytes
        # With the usual waits, a packet a second.
        self._strangers = Strangers(2 * first_wait)

    async def exchange(self, candidate: Candidate, handle: bytes, message: bytes) -> bytes:
        """See Transport."""
        endpoint, loop = candidate.endpoint, asyncio.get_running_loop()
        try:
            transport, packets = await loop.create_datagram_endpoint(
                lambda: _Packets(decode_envelope(message).request_id, self._max_bytes),
                remote_addr=(str(endpoint.address), endpoint.port),
            )
        except OSError as error:
            raise translate_socket_error(error) from error
        try:
            # The system may grant less.
            # A server sends all packets of an answer in one burst: 613 for 300 kB. The system's own limit is lower or
            # higher, so this needs no setting.
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024 * 1024)
            return await self._send_until_answered(transport, packets, split_message(message), endpoint)
        except errors.ServerUnreachable:
            self._strangers.record_refusal(endpoint.address, endpoint.port, loop.time())
            raise
        finally:
            transport.abort()

    async def aclose(self) -> None:
        """See Transport."""

    async def _send_until_answered(
        self, transport: asyncio.DatagramTransport, packets: _Packets, parts: list[bytes], endpoint: Endpoint
    ) -> bytes:
        loop, address = asyncio.get_running_loop(), endpoint.address
        for seconds in self._waits:
            may_send = self._strangers.may_send(address, len(parts), loop.time())
            if not may_send:
                self._require_open(endpoint, loop.time())
                await self._strangers.wait_for_answer(address, packets.message, seconds)
                self._require_open(endpoint, loop.time())
                is_done = packets.message.done()
                may_send = not is_done and self._strangers.may_send(address, len(parts), loop.time())
            if may_send:
                for part in parts:
                    transport.sendto(part)
                await asyncio.wait({packets.message}, timeout=seconds)
            if packets.is_answered:
                self._strangers.record_answer(address)
            if packets.message.done():
                return packets.message.result()
            if packets.refusal is not None:
                return packets.refusal
            if packets.has_part:
                # The server repeats no packet, and a second answer can differ from the first in its time.
                raise errors.ServerTimeout("Packets of the handle server's answer were lost.")
        raise errors.ServerTimeout("The handle server did not answer in time.")

    def _require_open(self, endpoint: Endpoint, now: float) -> None:
        if self._strangers.is_closed(endpoint.address, endpoint.port, now):
            raise errors.ServerUnreachable(detail="the port refused another message a moment ago")


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
