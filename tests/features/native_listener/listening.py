"""A proxy in this process with its native listener on real sockets of 127.0.0.1.

async with listening() as proxy:
    proxy.upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
    response = await proxy.resolve("10.1000/182", by="tcp")
    assert response.code == 1
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from uvicorn import Config
from uvicorn.server import ServerState

from app.features.native.transport.tunnel import MESSAGE
from app.features.native.wire.message import OpFlag
from app.features.native.wire.query import Filters, Query, encode_query
from app.features.native.wire.response import Response, decode_response
from app.server.protocol import ExpressProtocol
from tests.web.proxy import Proxy, running

PATIENCE: Final = 30.0
TRANSPORTS: Final = ("udp", "tcp", "http")
#: Seconds in which nothing may arrive, where a packet is dropped.
_QUIET: Final = 0.2


class Listening:
    """A proxy whose native listener is at `port`."""

    def __init__(self, proxy: Proxy, port: int, state: ServerState) -> None:
        self.proxy = proxy
        self.upstream = proxy.upstream
        self.clock = proxy.clock
        self.port = port
        self.state = state
        self.connections: Any = proxy.app.connections

    async def resolve(
        self, name: str | bytes, *, by: str = "tcp", flags: int = OpFlag.PUBLIC_ONLY, **filters: Any
    ) -> Response:
        """The answer about a name."""
        handle = name.encode() if isinstance(name, str) else name
        return await self.query(Query(Filters(handle, **filters), 7, 1_900_000_000, flags), by=by)

    async def query(self, query: Query, *, by: str = "tcp") -> Response:
        """The answer to a query. Its id is that of the query."""
        answer = await self.exchange(encode_query(query), by=by)
        assert answer is not None
        return decode_response(answer, digest_requested=bool(query.flags & OpFlag.REQUEST_DIGEST))

    async def exchange(self, request: bytes, *, by: str = "tcp") -> bytes | None:
        """The bytes of an answer; None if UDP drops the request."""
        async with asyncio.timeout(PATIENCE):
            if by == "udp":
                return await self._exchange_packet(request)
            if by == "tcp":
                return await self.send(request)
            return (await self.send(post(request))).partition(b"\r\n\r\n")[2]

    async def send(self, *pieces: bytes, end: bool = False) -> bytes:
        """Send pieces by TCP; all that arrives until the listener closes its side."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if end:
                writer.write_eof()
            async with asyncio.timeout(PATIENCE):
                return await reader.read()
        finally:
            writer.close()

    async def _exchange_packet(self, request: bytes) -> bytes | None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.connect(("127.0.0.1", self.port))
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sender, request)
            try:
                return await asyncio.wait_for(loop.sock_recv(sender, 65_536), _QUIET)
            except (TimeoutError, ConnectionRefusedError):
                return None


def post(request: bytes, kind: str = MESSAGE) -> bytes:
    """The bytes of a POST with a message, after which the connection ends."""
    head = f"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {len(request)}"
    return head.encode() + b"\r\n\r\n" + request


@asynccontextmanager
async def listening(address: str = "127.0.0.1", **settings: Any) -> AsyncIterator[Listening]:
    """Start a proxy with these settings and its listener, and stop both at the end."""
    async with running(native_listen="127.0.0.1:0", **settings) as proxy:
        application: Any = proxy.app.listeners["native_listen"]
        config, state = Config(application, log_config=None, lifespan="off"), ServerState()
        config.load()
        bound = socket.socket(socket.AF_INET)
        bound.bind((address, 0))
        server = await application.serve(
            bound, state, lambda: ExpressProtocol(config=config, server_state=state, app_state={})
        )
        try:
            await asyncio.sleep(0)
            yield Listening(proxy, bound.getsockname()[1], state)
        finally:
            server.close()
            for connection in tuple(state.connections):
                connection.shutdown()
            await asyncio.gather(*state.tasks, return_exceptions=True)
            await server.wait_closed()
