"""A network in memory: pairs of transports, and servers that listen at an address of their own."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self

Address = tuple[str, int]
#: Bytes on their way at which a sender is paused, as by a full buffer of a socket.
_HIGH_WATER: Final = 256 * 1024
_FIRST_PORT: Final = 40_000
_RESET: Final = struct.pack("ii", 1, 0)


class _Socket:
    """What a protocol finds as the socket of its transport."""

    family = socket.AF_UNIX

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        """A linger time of zero makes the next close a reset."""
        if option == socket.SO_LINGER and value == _RESET:
            self._wire.resets = True


class Wire(asyncio.Transport):
    """One end of a connection. What it writes arrives at the other end in a later turn of the loop, in order."""

    def __init__(self, network: Network, protocol: Any, own: Address, peer: Address) -> None:
        super().__init__({"sockname": own, "peername": peer, "socket": _Socket(self)})
        self._network, self._protocol = network, protocol
        self.other: Wire
        self.resets = False
        self._inbox: deque[bytes] = deque()
        self._arriving = 0
        self._eof_arrives = self._is_scheduled = self._is_paused = False
        self._is_closing = self._is_lost = self._wrote_eof = self._is_throttled = False

    # What a protocol calls

    def write(self, data: Any) -> None:
        if self._is_closing or self._wrote_eof or not data:
            return
        self.other._receive(bytes(data))
        if self.other._arriving > _HIGH_WATER and not self._is_throttled:
            self._is_throttled = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        if not self._wrote_eof:
            self._wrote_eof = True
            self.other._eof_arrives = True
            self.other._schedule()

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if self.resets:
            self.abort()
        elif not self._is_closing:
            self.write_eof()
            self._is_closing = True
            self._network.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self._is_closing = True
        self.other._inbox.clear()
        self._network.loop.call_soon(self._lose, None)
        self._network.loop.call_soon(self.other._lose, ConnectionResetError("the peer reset the connection"))

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._schedule()

    def is_reading(self) -> bool:
        return not self._is_paused

    def get_write_buffer_size(self) -> int:
        return self.other._arriving

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    # What the other end causes

    def _receive(self, data: bytes) -> None:
        if not self._is_closing:
            self._inbox.append(data)
            self._arriving += len(data)
            self._schedule()

    def _schedule(self) -> None:
        if not (self._is_scheduled or self._is_paused or self._is_lost) and (self._inbox or self._eof_arrives):
            self._is_scheduled = True
            self._network.call_on_arrival(self._deliver)

    def _deliver(self) -> None:
        self._is_scheduled = False
        if self._is_paused or self._is_closing:
            return
        data = b"".join(self._inbox)
        self._inbox.clear()
        self._arriving = 0
        if data:
            self._protocol.data_received(data)
        if self.other._is_throttled:
            self.other._is_throttled = False
            self.other._protocol.resume_writing()
        if self._eof_arrives and not (self._inbox or self._is_closing):
            self._eof_arrives = False
            if not self._protocol.eof_received():
                self.close()

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._protocol.connection_lost(error)


class Listening:
    """A server that listens at an address."""

    def __init__(self, network: Network, address: Address, create_protocol: Callable[[], Any]) -> None:
        self._network, self._address, self.create_protocol = network, address, create_protocol

    @property
    def sockets(self) -> list[Self]:
        """One, which knows its address."""
        return [self]

    def getsockname(self) -> Address:
        """The address."""
        return self._address

    def close(self) -> None:
        """Refuse further connections."""
        if self._network.servers.get(self._address) is self:
            del self._network.servers[self._address]

    async def wait_closed(self) -> None:
        """Nothing has to be waited for."""


class Network:
    """Connects clients to servers. `latency` returns the seconds that the next delivery takes; 0 is a turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, latency: Callable[[], float] | None = None) -> None:
        self.loop = loop
        self.servers: dict[Address, Listening] = {}
        self._latency = latency
        self._ports = _FIRST_PORT

    def new_port(self) -> int:
        """A port that no connection or server has."""
        self._ports += 1
        return self._ports

    def listen(self, create_protocol: Callable[[], Any], address: Address) -> Listening:
        """Listen at an address; port 0 is a new one."""
        host, port = address
        server = Listening(self, (host, port or self.new_port()), create_protocol)
        self.servers[server.getsockname()] = server
        return server

    def connect(self, client: Any, address: Address, own_host: str = "127.0.0.1") -> Wire:
        """Connect a protocol from an address of its own. Raises ConnectionRefusedError."""
        server = self.servers.get(address)
        if server is None:
            raise ConnectionRefusedError(111, f"nothing listens at {address}")
        own = (own_host, self.new_port())
        near, far = Wire(self, client, own, address), Wire(self, server.create_protocol(), address, own)
        near.other, far.other = far, near
        far._protocol.connection_made(far)
        client.connection_made(near)
        return near

    def call_on_arrival(self, deliver: Callable[[], None]) -> None:
        """Call after the time of one delivery."""
        if self._latency is None:
            self.loop.call_soon(deliver)
        else:
            self.loop.call_later(self._latency(), deliver)
