"""UDP of the listener. The sender of a packet can be forged, so little is answered, and a client turns to TCP.

The system drops a packet from outside whose sender is a loopback address (RFC 1122, section 3.2.1.3), so no limit holds
for senders of this machine. None holds for client_allow_file either: it has networks of the operator, whose routers
have to drop packets from outside that name them (RFC 2827).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, Final, cast

from doi_proxy.features.native_listener.messages import HandleRequest, read_request
from doi_proxy.features.native_listener.responder import Peer, Responder
from doi_proxy.web.client_network import client_of
from handle_protocol.errors import MalformedMessage
from handle_protocol.wire.message import OpCode, OpFlag
from handle_protocol.wire.packets import MAX_PACKET_BYTES

#: Answers to one network in any second. With MAX_PACKET_BYTES, a forged sender gets 2.5 kB a second.
MAX_ANSWERS: Final = 5
#: The IPv6 networks that count, in bits of their prefix: those that a provider gives to one customer.
_IPV6_PREFIX: Final = 56
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

    def __init__(self, responder: Responder, host: str, port: int, timer: Callable[[], float]) -> None:
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
        if is_limited and not self._limit.admit(client_of(addr[0], _IPV6_PREFIX), self._timer()):
            self._responder.count("dropped")
            return
        try:
            request = read_request(data)
        except MalformedMessage:
            self._responder.count("dropped")
            return
        peer = Peer(addr[0], self._host, self._port, is_forgeable)
        bypasses = request.has(OpFlag.AUTHORITATIVE) or request.has(OpFlag.CERTIFIED)
        # At an unspecified address, the socket does not know which address the client used.
        is_unknown = request.op_code == OpCode.SITE_INFORMATION and ip_address(self._host).is_unspecified
        # What bypasses the cache is charged to the network of the client, by TCP alone if the address can be forged.
        if request.message.envelope.is_part or is_unknown or (bypasses and peer.is_forgeable):
            self._responder.count("dropped")
        elif (answer := self._responder.answer_now(request, peer)) is not None:
            self._send(answer, addr)
        elif len(self._waiting) < MAX_WAITING:
            task = asyncio.get_running_loop().create_task(self._answer(request, peer, addr))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
        else:
            self._responder.count("dropped")

    async def _answer(self, request: HandleRequest, peer: Peer, address: Any) -> None:
        self._send(await self._responder.answer(request, peer), address)

    def _send(self, answer: bytes, address: Any) -> None:
        # A handle server would send several packets: more than the forged sender of one should get.
        if len(answer) <= MAX_PACKET_BYTES:
            self._transport.sendto(answer, address)
        else:
            self._responder.count("dropped")
