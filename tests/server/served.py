"""The whole service behind its server, with the listeners of features, and streams of bytes to each of them.

async with served() as server:
    assert statuses(await server.exchange(b"GET /10.1000/182 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")) == [302]

All of it is in memory and in virtual time: what a test waits for costs nothing.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from uvicorn.lifespan.off import LifespanOff

from doi_proxy.commands.serve import server_options
from doi_proxy.server.certificate import Certificate
from doi_proxy.server.connections import Connections, Reason
from doi_proxy.server.http_server import Events, FurtherListener, HttpServer
from doi_proxy.server.listening import listen, listen_at
from tests.web.proxy import Proxy, running
from tests.world.loop import WorldLoop
from tests.world.network import RESET, Wire

TARGET: Final = "http://www.doi.org/hb.html"
NAME: Final = "10.1000/182"
#: The address of a client that does not choose one.
CLIENT: Final = "192.0.2.7"
#: Virtual seconds. No exchange takes longer.
_MAX_WAIT: Final = 3_600.0
#: Bytes that a client reads ahead.
_READ_AHEAD: Final = 1_024


class Served:
    """A listening service. `ports` has that of HTTP as "http", and those of further listeners by their setting."""

    def __init__(self, proxy: Proxy, server: HttpServer, sockets: Mapping[str, socket.socket]) -> None:
        self.proxy, self.upstream, self.clock = proxy, proxy.upstream, proxy.clock
        self.application = proxy.app
        self.connections = cast(Connections, proxy.app.connections)
        self.server = server
        self.ports: dict[str, int] = {name: listening.getsockname()[1] for name, listening in sockets.items()}
        self._listening, self._has_ended = sockets["http"], False
        self._writers: list[asyncio.StreamWriter] = []
        self.network = cast(WorldLoop, asyncio.get_running_loop()).network

    async def put(self, name: str, size: int = 0) -> None:
        """Register a name, with a description of `size` bytes, and have it in the cache."""
        kinds = (("URL", TARGET), ("DESC", "x" * size))
        values = [
            {"index": index, "type": kind, "data": {"format": "string", "value": text}, "ttl": 86_400}
            for index, (kind, text) in enumerate(kinds, 1)
        ]
        self.upstream.put(name, values)
        reply = await self.proxy.get(f"/api/handles/{name}")
        assert reply.status == 200, reply.text[:500]

    @property
    def unsent(self) -> int:
        """The bytes of answers that the system has not accepted, as clients do not read."""
        return sum(connection.transport.get_write_buffer_size() for connection in self._open())

    @property
    def blocked(self) -> int:
        """The connections whose answer waits for a client that does not read."""
        return sum(connection.flow.write_paused for connection in self._open())

    def _open(self) -> Any:
        connections: Any = self.connections._holder
        return connections

    async def connect(
        self, to: str = "http", client: str | None = CLIENT
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of a client, which reads only a few kilobytes ahead. See Network.connect."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(_READ_AHEAD, loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        wire: Wire = self.network.connect(protocol, ("127.0.0.1", self.ports[to]), client)
        writer = asyncio.StreamWriter(wire, protocol, reader, loop)
        self._writers.append(writer)
        return reader, writer

    async def exchange(self, *pieces: bytes, end: bool = False, to: str = "http", client: str = CLIENT) -> bytes:
        """Send pieces, and with `end` the end of sending; all that the server sends until it closes."""
        reader, writer = await self.connect(to, client)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if end:
            writer.write_eof()
        return await finish(reader, writer)

    async def shut_down(self) -> None:
        """End the service: the ports close, and what runs may finish."""
        self._has_ended = True
        await self.server.shutdown([self._listening])

    async def close(self) -> None:
        """End the clients and the service."""
        for writer in self._writers:
            writer.close()
        if not self._has_ended:
            await self.shut_down()

    async def closed(self, reason: Reason, number: int = 1) -> None:
        """Wait until `number` connections were closed for a reason."""
        async with asyncio.timeout(_MAX_WAIT):
            while self.connections.closed[reason] < number:  # noqa: ASYNC110 - the counter has no event
                await asyncio.sleep(1)


async def finish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Read what the server sends until it closes."""
    try:
        async with asyncio.timeout(_MAX_WAIT):
            return await reader.read()
    finally:
        writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as a program does that is killed: what it was sent meets a reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


def statuses(answers: bytes) -> list[int]:
    """The statuses of answers of HTTP."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", answers)]


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[Served]:
    """Start a service with these settings and constants. It has NAME in its cache."""
    async with serving(**settings) as service:
        await service.put(NAME)
        yield service


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Served]:
    """Start a service with these settings and constants. Its cache is empty."""
    async with running(**settings) as proxy:
        # The sockets are bound, as those of the program are, and have no further part: the network is in memory.
        sockets = {"http": listen("127.0.0.1", 0)}
        for name in proxy.app.listeners:
            sockets[name] = listen_at(proxy.settings.value(name))
        further = [FurtherListener(served, sockets[name]) for name, served in proxy.app.listeners.items()]
        events = Events(ready=lambda: None, draining=lambda: None)
        options = server_options(proxy.settings, Certificate(None, None))
        server = HttpServer(proxy.app, options, events, further)
        server.lifespan = LifespanOff(server.config)
        service = Served(proxy, server, sockets)
        await server.startup([sockets["http"]])
        try:
            yield service
        finally:
            await service.close()
