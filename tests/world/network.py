"""A network in memory: connections, datagrams, and servers that listen at an address of their own.

It does what Linux does with loopback. A peer that does not read stops the sender after `BUFFER` bytes. One end can be
closed alone. A socket that is closed with unread bytes resets its connection, and what is on its way is lost then.
`tests/world/test_network.py` compares it with real sockets.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from asyncio.protocols import _feed_data_to_buffered_proto  # type: ignore[attr-defined]
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any, Final, Self

from tests.world.process import PROCESS, Machine, Process, hold, let_go

Address = tuple[str, int]
#: Bytes that the sockets of both ends hold for a peer that does not read.
BUFFER: Final = 64 * 1024
#: Bytes of one read, and unsent bytes at which a protocol is told to pause and to go on, as with asyncio's sockets.
_MAX_READ: Final = 256 * 1024
_HIGH_WATER: Final = 64 * 1024
_LOW_WATER: Final = 16 * 1024
#: The system gives higher ports to sockets that are bound.
_FIRST_PORT: Final = 20_000
#: The linger time of a socket whose close is a reset.
RESET: Final = struct.pack("ii", 1, 0)
_LOCALHOST: Final = "127.0.0.1"
#: A server at one of these answers at every address.
_UNSPECIFIED: Final = ("0.0.0.0", "::")


class _Socket:
    """What a protocol finds as the socket of its transport."""

    family = socket.AF_UNIX

    def __init__(self, transport: Wire | Datagrams) -> None:
        self._transport = transport

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """A linger time of zero makes the next close a reset."""
        if option == socket.SO_LINGER and value == RESET and isinstance(self._transport, Wire):
            self._transport.resets = True

    def getsockname(self) -> Address:
        """The address of this end."""
        address: Address = self._transport.get_extra_info("sockname")
        return address


class Wire(asyncio.Transport):
    """One end of a connection. What it writes arrives at the other end in a later turn of the loop, in order."""

    #: `start_tls` of asyncio accepts it.
    _start_tls_compatible = True

    def __init__(self, network: Network, protocol: Any, own: Address, peer: Address | None) -> None:
        super().__init__({"sockname": own, "peername": peer, "socket": _Socket(self)})
        self._network = network
        self.set_protocol(protocol)
        self.process, self._context = PROCESS.get(), copy_context()
        hold(self)
        self.other: Wire
        network.wires[self] = None
        self.resets = False
        #: What this end has sent and the system has not accepted.
        self._unsent = bytearray()
        #: What is on its way to this end, or waits for it to read.
        self._inbox = bytearray()
        self._high, self._low = _HIGH_WATER, _LOW_WATER
        self._eof_arrives = self._is_scheduled = self._is_paused = False
        self._is_closing = self._is_lost = self._wrote_eof = self._is_throttled = False

    # What a protocol calls

    def write(self, data: Any) -> None:
        if self._is_closing or self._wrote_eof or not data:
            return
        room = BUFFER - len(self.other._inbox)
        if not self._unsent and len(data) <= room:
            self.other._receive(data)
            return
        self._unsent += data
        self._flush()
        if len(self._unsent) > self._high and not self._is_throttled:
            self._is_throttled = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        if not (self._wrote_eof or self._is_closing):
            self._wrote_eof = True
            self._flush()

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if self.resets:
            self.abort()
        elif not self._is_closing:
            self._is_closing = True
            if not self._unsent:
                self._network.loop.call_soon(self._lose, None, context=self._context)

    def abort(self) -> None:
        """Close at once: what the system has accepted still arrives, unless the linger time is zero."""
        self._force_close(None)

    def _force_close(self, error: Exception | None) -> None:
        """Close at once because of an error, as TLS of asyncio does after a handshake that failed."""
        self._is_closing = True
        self._unsent.clear()
        if self.resets:
            self.other._reset_soon()
        self._network.loop.call_soon(self._lose, error, context=self._context)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._schedule()

    def is_reading(self) -> bool:
        return not (self._is_paused or self._is_closing)

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def kill(self) -> None:
        """The process of this end was killed. Its protocol hears of it when the process is buried."""
        self._network.loop.call_soon(self._protocol.connection_lost, None, context=self._context)
        self.set_protocol(asyncio.Protocol())
        self.resets = True
        self.abort()

    # What the other end causes

    def _flush(self) -> None:
        """Let the system have as much of what is unsent as it has room for."""
        if self._unsent:
            room = max(0, BUFFER - len(self.other._inbox))
            self.other._receive(self._unsent[:room])
            del self._unsent[:room]
        if not self._unsent:
            if self._wrote_eof:
                self.other._eof_arrives = True
                self.other._schedule()
            if self._is_closing and not self._is_lost:
                self._network.loop.call_soon(self._lose, None, context=self._context)
        if self._is_throttled and len(self._unsent) <= self._low and not self._is_lost:
            self._is_throttled = False
            self._protocol.resume_writing()

    def _receive(self, data: bytes | bytearray) -> None:
        if self._is_lost:
            if not self.other._is_lost:
                self._network.call_on_arrival(self.other._reset, self.other._context)
        else:
            self._inbox += data
            self._schedule()

    def _schedule(self) -> None:
        if not (self._is_scheduled or self._is_paused or self._is_lost) and (self._inbox or self._eof_arrives):
            self._is_scheduled = True
            self._network.call_on_arrival(self._deliver, self._context)

    def _deliver(self) -> None:
        self._is_scheduled = False
        if self._is_paused or self._is_closing or self._network.is_cut(self):
            return
        if self._inbox:
            size = self._network.read_size()
            data = bytes(self._inbox[:size])
            del self._inbox[:size]
            if self._is_buffered:
                _feed_data_to_buffered_proto(self._protocol, data)
            else:
                self._protocol.data_received(data)
            if self.other._unsent or self.other._is_throttled:
                self.other._flush()
            self._schedule()
        elif self._eof_arrives:
            self._eof_arrives = False
            if not self._protocol.eof_received():
                self.close()

    def _reset(self) -> None:
        self._inbox.clear()
        self._unsent.clear()
        self._lose(ConnectionResetError(104, "Connection reset by peer"))

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._network.wires.pop(self, None)
        let_go(self.process, self)
        if self._inbox:
            self.other._reset_soon()
        elif not self._wrote_eof:
            self._wrote_eof = True
            self.other._eof_arrives = True
            self.other._schedule()
        self._protocol.connection_lost(error)

    def _reset_soon(self) -> None:
        self._inbox.clear()
        self._network.call_on_arrival(self._reset, self._context)


class Datagrams(asyncio.DatagramTransport):
    """A socket for datagrams. One with a `peer` gets those of that peer alone."""

    def __init__(self, network: Network, protocol: Any, own: Address, peer: Address | None) -> None:
        super().__init__({"sockname": own, "peername": peer, "socket": _Socket(self)})
        self._network, self._protocol, self._own, self._peer = network, protocol, own, peer
        self._is_closing = False

    def sendto(self, data: Any, addr: Any = None) -> None:
        if not self._is_closing:
            host, port = self._own
            source = (_LOCALHOST if host in _UNSPECIFIED else host, port)
            self._network.send_datagram(bytes(data), source, addr or self._peer)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._network.sockets.pop(self._own, None)
            self._network.loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def receive(self, data: bytes, source: Address) -> None:
        """A datagram has arrived."""
        if not self._is_closing and self._peer in (None, source):
            self._protocol.datagram_received(data, source)

    def refuse(self, target: Address) -> None:
        """Nothing listens where a datagram was sent. Only a socket with a peer hears of it (ICMP)."""
        if not self._is_closing and self._peer == target:
            self._protocol.error_received(ConnectionRefusedError(111, "Connection refused"))


class Listening:
    """A server that listens at an address."""

    def __init__(self, network: Network, address: Address, create_protocol: Callable[[], Any]) -> None:
        self._network, self._address, self._create_protocol = network, address, create_protocol
        self._process, self._context = PROCESS.get(), copy_context()
        hold(self)

    def accept(self, client: Wire, own: Address, peer: Address | None) -> None:
        """Accept the connection of a client, in the process that listens."""
        self._context.copy().run(self._accept, client, own, peer)

    def _accept(self, client: Wire, own: Address, peer: Address | None) -> None:
        protocol = self._create_protocol()
        accepted = Wire(self._network, protocol, own, peer)
        accepted.other, client.other = client, accepted
        protocol.connection_made(accepted)

    @property
    def sockets(self) -> list[Self]:
        """One, which knows its address."""
        return [self]

    def getsockname(self) -> Address:
        """The address."""
        return self._address

    def close(self) -> None:
        """Refuse further connections."""
        let_go(self._process, self)
        if self._network.servers.get(self._address) is self:
            del self._network.servers[self._address]

    def kill(self) -> None:
        """The process that listens was killed."""
        self.close()

    async def wait_closed(self) -> None:
        """Nothing has to be waited for."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Network:
    """Connects clients to servers. `latency` returns the seconds that the next delivery takes; 0 is a turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, latency: Callable[[], float] | None = None) -> None:
        self.loop = loop
        #: The bytes of the next delivery, at most.
        self.read_size: Callable[[], int] = lambda: _MAX_READ
        #: The ends of the open connections.
        self.wires: dict[Wire, None] = {}
        #: The links that are cut: of the processes of a machine to an address. Nothing passes, and nothing is lost.
        self._cut: list[tuple[Machine, Address]] = []
        self.servers: dict[Address, Listening] = {}
        self.sockets: dict[Address, Datagrams] = {}
        #: The seconds until each copy of a datagram arrives: none is a loss, two are a repetition. None: all arrive.
        self.fate_of_datagrams: Callable[[bytes, Address, Address], Sequence[float]] | None = None
        self._latency = latency
        self._ports = _FIRST_PORT

    def new_port(self) -> int:
        """A port that no connection or server has."""
        self._ports += 1
        return self._ports

    def listen(self, create_protocol: Callable[[], Any], address: Any) -> Listening:
        """Listen at an address; port 0 is a new one. Raises OSError if another server has it."""
        own = self._own_address(address)
        if own in self.servers:
            raise OSError(98, f"Address already in use: {own}")
        self.servers[own] = server = Listening(self, own, create_protocol)
        return server

    def cut(self, machine: Machine, address: Address) -> None:
        """Let nothing pass between the processes of a machine and an address."""
        self._cut.append((machine, address))

    def mend(self) -> None:
        """Let everything pass again."""
        self._cut.clear()
        for wire in list(self.wires):
            wire._schedule()

    def is_cut(self, wire: Wire) -> bool:
        """Whether nothing passes at a connection."""
        if not self._cut:
            return False
        return any(self.is_apart(end.process, end.get_extra_info("peername")) for end in (wire, wire.other))

    def is_apart(self, process: Process | None, address: Any) -> bool:
        """Whether the link of a process to an address is cut."""
        return process is not None and (process.machine, address) in self._cut

    def require_server(self, address: Any) -> Listening:
        """The server at an address. Raises ConnectionRefusedError."""
        server: Listening | None = self._find(self.servers, _normal(address))
        process = PROCESS.get()
        if server is None or (process is not None and process.is_killed):
            raise ConnectionRefusedError(111, f"Connection refused: nothing listens at {address}")
        return server

    def connect(self, client: Any, address: Any, own_host: str | None = _LOCALHOST) -> Wire:
        """Connect a protocol from an address of its own. Raises ConnectionRefusedError.

        Without `own_host`, the client has reset the connection before the server accepts it.
        """
        target, server = _normal(address), self.require_server(address)
        own = (own_host or _LOCALHOST, self.new_port())
        wire = Wire(self, client, own, target)
        server.accept(wire, target, None if own_host is None else own)
        client.connection_made(wire)
        return wire

    def open_datagrams(self, protocol: Any, own: Any = None, peer: Any = None) -> Datagrams:
        """A socket for datagrams. Raises OSError if another one has its address."""
        address = self._own_address(own or (_LOCALHOST, 0))
        if address in self.sockets:
            raise OSError(98, f"Address already in use: {address}")
        opened = Datagrams(self, protocol, address, None if peer is None else _normal(peer))
        self.sockets[address] = opened
        protocol.connection_made(opened)
        return opened

    def send_datagram(self, data: bytes, source: Address, target: Any) -> None:
        """Send a datagram. Its source can be forged."""
        target = _normal(target)
        if self.fate_of_datagrams is None:
            self.call_on_arrival(lambda: self._deliver(data, source, target))
        else:
            for seconds in self.fate_of_datagrams(data, source, target):
                self.loop.call_later(seconds, self._deliver, data, source, target)

    def _deliver(self, data: bytes, source: Address, target: Address) -> None:
        receiver = self._find(self.sockets, target)
        if receiver is not None:
            receiver.receive(data, source)
        elif (sender := self._find(self.sockets, source)) is not None:
            sender.refuse(target)

    def call_on_arrival(self, deliver: Callable[[], None], context: Context | None = None) -> None:
        """Call after the time of one delivery."""
        if self._latency is None:
            self.loop.call_soon(deliver, context=context)
        else:
            self.loop.call_later(self._latency(), deliver, context=context)

    def _own_address(self, address: Any) -> Address:
        host, port = _normal(address)
        return host, port or self.new_port()

    @staticmethod
    def _find(places: dict[Address, Any], address: Address) -> Any:
        """What is at an address, or at all addresses."""
        found = places.get(address)
        if found is None:
            everywhere = (places.get((host, address[1])) for host in _UNSPECIFIED)
            found = next((place for place in everywhere if place is not None), None)
        return found


def _normal(address: Any) -> Address:
    """An address without the flow and the scope of IPv6."""
    host, port = address[:2]
    return _LOCALHOST if host in (None, "localhost") else host, port
