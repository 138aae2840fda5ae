"""The application and its protocol on a real socket of 127.0.0.1, with records in memory and no upstream."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from uvicorn import Config
from uvicorn.server import ServerState

from app.assembly.settings import Settings
from app.assembly.stores import open_cache
from app.cache.entry import Entry
from app.cache.memory import MemoryStore
from app.handle.answer import Answer, ResponseCode
from app.main import SuppliedParts, create
from app.server.connections import Connections, Reason
from app.server.protocol import ExpressProtocol
from app.upstream.source import Source
from tests.accepting import stop_accepting
from tests.constants import changed, split

#: The deadline of every awaited event, in seconds, on a busy machine.
PATIENCE: Final = 30.0
TARGET: Final = "http://www.doi.org/hb.html"
_VALUES: Final = b'[{"index":1,"type":"URL","data":"%s"}]' % TARGET.encode()
#: The clients of these tests are not front proxies, but the default trusts 127.0.0.1.
_CHOSEN: Final[dict[str, Any]] = {
    "store_url": "memory:",
    "upstream_url": "http://127.0.0.1:9",
    "upstream_contact": "mailto:a@example.org",
    "trusted_proxies": "192.0.2.1",
}


class Served:
    """A listening server."""

    def __init__(self, application: Any, memory: MemoryStore) -> None:
        self.application = application
        self._memory = memory
        self.connections: Connections = application.connections
        self.port = 0
        self.listening: Any = None

    def put(self, name: str, size: int = 0) -> None:
        """Put a record of a name into memory, with a description of `size` bytes."""
        values = _VALUES[:-1] + b',{"index":2,"type":"DESC","data":"' + b"x" * size + b'"}]'
        now = time.time()
        answer = Answer(ResponseCode.SUCCESS, values)
        entry = Entry(name.upper(), answer, now, now + 86_400, now + 10**6)
        self._memory.keep(entry)

    @property
    def unsent(self) -> int:
        """The bytes of answers that clients have not read."""
        connections: Any = self.connections._holder
        return sum(connection.transport.get_write_buffer_size() for connection in connections)

    def shrink_send_buffers(self) -> None:
        """Notice sooner that a client does not read: the system would buffer megabytes for a new connection."""
        self.listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)

    @property
    def blocked(self) -> int:
        """The connections whose answer waits for a client that does not read."""
        connections: Any = self.connections._holder
        return sum(connection.flow.write_paused for connection in connections)

    def stop_sweeps(self) -> float:
        """End the sweeps of the open connections by time: the test sweeps. Returns the time of the last one."""
        timer: Any = self.connections._timer
        timer.cancel()
        return self.connections.now

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection that buffers only a few kilobytes."""
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1024)

    async def exchange(self, *pieces: bytes, end: bool = False) -> bytes:
        """Send pieces, and with `end` the end of sending; all that the server sends until it closes."""
        reader, writer = await self.connect()
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if end:
            writer.write_eof()
        return await finish(reader, writer)

    async def closed(self, reason: Reason, number: int = 1) -> None:
        """Wait until `number` connections were closed for a reason."""
        async with asyncio.timeout(PATIENCE):
            while self.connections.closed[reason] < number:  # noqa: ASYNC110 - the counter has no event
                await asyncio.sleep(0.01)


async def finish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Read what the server sends until it closes."""
    found = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            while piece := await reader.read(65_536):
                found += piece
    finally:
        writer.close()
    return bytes(found)


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[Served]:
    """A server with these settings and constants; it knows 10.1000/182."""
    constants, settings = split(settings)
    with changed(constants):
        async with _served(settings) as server:
            yield server


@asynccontextmanager
async def _served(settings: dict[str, Any]) -> AsyncIterator[Served]:
    chosen = Settings(**{**_CHOSEN, **settings})
    cache = open_cache(chosen)
    sources: list[Source] = []

    def keep(source: Source) -> Source:
        sources.append(source)
        return source

    application = create(chosen, parts=SuppliedParts(cache=cache, wrap_source=keep))
    config = Config(application, log_config=None, lifespan="off", access_log=False, date_header=False)
    config.load()
    state = ServerState()
    server = Served(application, cache.memory)
    server.put("10.1000/182")
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(
        lambda: ExpressProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    server.listening = listening.sockets[0]
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        await stop_accepting(listening)
        for connection in tuple(state.connections):
            connection.transport.abort()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        await listening.wait_closed()
        for source in sources:
            await source.aclose()
