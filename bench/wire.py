"""The protocol of the server without a socket: bytes in, bytes out, without the kernel."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from bench.servers import HOST
from doi_proxy.server.protocol import ServerProtocol
from doi_proxy.server.proxies import trusted_hosts

_PEERS: Final = {"peername": (HOST, 50_000), "sockname": (HOST, 8_000)}


class Wire:
    """A server of an application under `protocol`; the default is the one that `doi-proxy serve` uses."""

    def __init__(self, application: Any, protocol: type[HttpToolsProtocol] = ServerProtocol) -> None:
        self._config = Config(application, lifespan="off", access_log=False, log_config=None)
        self._config.load()
        if protocol is ServerProtocol:
            self._config.loaded_app.trusted_hosts = trusted_hosts((HOST,))  # as `doi-proxy serve` does
        self._state = ServerState()
        self._state.default_headers = [(b"date", b"Mon, 01 Jan 2024 00:00:00 GMT")]
        self._protocol = protocol

    def connect(self) -> Connection:
        """A new connection; made inside a loop, which the protocol needs."""
        return Connection(self._protocol(self._config, self._state, {}))


class Connection(asyncio.Transport):
    """One connection, whose protocol is `protocol`."""

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self.written = bytearray()
        protocol.connection_made(self)

    async def ask(self, path: str) -> bytes:
        """The bytes of the answer to a GET."""
        return await self.send(request_of(path))

    async def send(self, request: bytes) -> bytes:
        """The bytes of the answer to a request."""
        self.written.clear()
        self._protocol.data_received(request)
        # The lane answers immediately; otherwise a task of the server does.
        for task in tuple(self._protocol.tasks):
            await task
        return bytes(self.written)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See asyncio.BaseTransport."""
        return _PEERS.get(name, default)

    def write(self, data: Any) -> None:
        """See asyncio.WriteTransport."""
        self.written += data

    def get_write_buffer_size(self) -> int:
        """See asyncio.WriteTransport."""
        return 0

    def is_closing(self) -> bool:
        """See asyncio.BaseTransport."""
        return False

    def close(self) -> None:
        """See asyncio.BaseTransport."""

    def lose(self) -> None:
        """Report the end of the connection, as a loop does after `close`."""
        self._protocol.connection_lost(None)


def request_of(path: str, *headers: str) -> bytes:
    """The bytes of a GET with these header lines, such as "Accept: */*"."""
    return "\r\n".join((f"GET {path} HTTP/1.1", f"Host: {HOST}:8000", *headers, "", "")).encode("ascii")


async def connected(application: Any, protocol: type[HttpToolsProtocol] = ServerProtocol) -> Connection:
    """A connection; made inside a loop, which the protocol needs."""
    return Wire(application, protocol).connect()
