"""A Valkey server on the network in memory, for the real client of features/valkey. It can fail in many ways."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tests.world.calls import CALLS, SLOW, Calls
from tests.world.network import Address, Network
from tests.world.valkey_data import EMPTY, Data, Failure, Keys, Reply, Status

#: Where the server listens.
ADDRESS: Final[Address] = ("127.0.0.1", 6379)
#: The URL of its store.
URL: Final = "valkey://{}:{}/0".format(*ADDRESS)


class Server:
    """A server at an address that speaks the protocol of Valkey."""

    def __init__(self, network: Network, address: Address) -> None:
        self._network, self.address = network, address
        #: Seconds that each reply takes.
        self.delay = 0.0
        self._is_silent = False
        self.connections: set[_Connection] = set()
        self._server = network.listen(lambda: _Connection(self), address)

    def execute(self, words: list[bytes]) -> Reply:
        """Do a command of a client. An error is a Failure."""
        raise NotImplementedError

    def stop(self) -> None:
        """The process ends: connections are reset, further ones refused."""
        self._server.close()
        for connection in list(self.connections):
            connection.transport.abort()
        self.connections.clear()

    def _listen(self) -> None:
        self._is_silent = False
        self._server = self._network.listen(lambda: _Connection(self), self.address)

    @property
    def is_silent(self) -> bool:
        """Whether it reads nothing now."""
        return self._is_silent

    def call_later(self, delay: float, act: Callable[[], None]) -> None:
        """Act when a reply is due."""
        self._network.loop.call_later(delay, act)


class Valkey(Server):
    """A server with keys. `clock` gives seconds since the epoch."""

    def __init__(self, network: Network, clock: Callable[[], float], address: Address = ADDRESS) -> None:
        super().__init__(network, address)
        self._clock = clock
        self.keys = Keys(self._now)
        #: Seconds by which its clock is ahead.
        self.ahead = 0.0

    def _now(self) -> float:
        return self._clock() + self.ahead

    # What a test does to it

    def start(self, file: Data = EMPTY) -> None:
        """A new process with the data of a file."""
        self._listen()
        self.keys.is_full = self.keys.is_replica = False
        self.keys.load(file)

    def fail_over(self) -> None:
        """The process became a replica: it refuses writes, on connections that stay open."""
        self.keys.is_replica = True

    def hang(self) -> None:
        """Commands arrive, and are not read."""
        self._is_silent = True

    def resume(self) -> None:
        """Read what arrived meanwhile, also from connections that were closed since: as a process that stood still."""
        self._is_silent = False
        for connection in list(self.connections):
            connection.work()

    # What its connections call

    def execute(self, words: list[bytes]) -> Reply:
        """See Server."""
        try:
            return self.keys.call(*words)
        except Failure as failure:
            return failure


class _Connection(asyncio.Protocol):
    """A connection of a client: commands come in, replies go out in their order."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.transport: Any
        self._data = bytearray()
        self._commands: deque[list[bytes]] = deque()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        # A server that stands still reads later what has arrived.
        if not self._commands:
            self._server.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (command := _read_command(self._data)) is not None:
            self._commands.append(command)
        self.work()

    def work(self) -> None:
        """Do the commands that have arrived, unless the server stands still."""
        while self._commands and not self._server.is_silent:
            words, calls = self._commands.popleft(), Calls.current
            trouble = calls.how if calls is not None and calls.how in CALLS and calls.is_due() else None
            reply = b"" if trouble == "fails" else write_reply(self._server.execute(words))
            if trouble in ("fails", "is cut short"):
                self.transport.abort()
                return
            delay = self._server.delay + (SLOW if trouble else 0.0)
            if delay:
                self._server.call_later(delay, partial(self.transport.write, reply))
            else:
                self.transport.write(reply)


def _read_command(data: bytearray) -> list[bytes] | None:
    """Take a command off the data: an array of texts. None if it is not complete."""
    head, at = data.find(b"\r\n"), 0
    if head < 0:
        return None
    words, at = [], head + 2
    for _ in range(int(data[1:head])):
        line = data.find(b"\r\n", at)
        if line < 0:
            return None
        size = int(data[at + 1 : line])
        at = line + 2 + size + 2
        if at > len(data):
            return None
        words.append(bytes(data[line + 2 : line + 2 + size]))
    del data[:at]
    return words


def write_reply(reply: Reply) -> bytes:
    """A reply in the protocol of the server, version 2. https://valkey.io/topics/protocol/"""
    match reply:
        case None:
            return b"$-1\r\n"
        case int():
            return b":%d\r\n" % reply
        case Failure():
            return b"-%s\r\n" % str(reply).encode()
        case Status():
            return b"+%s\r\n" % reply
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(reply), reply)
        case _:
            return b"*%d\r\n%s" % (len(reply), b"".join(map(write_reply, reply)))
