"""An egress proxy that opens tunnels (RFC 9110, section 9.3.6)."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Self

from tests.accepting import accept_into, close_server


class Tunnel:
    """An HTTP proxy on loopback that serves only CONNECT. `targets` are the requested hosts.

    With another `status` than 200 it opens no tunnel.
    """

    def __init__(self, status: int = 200) -> None:
        self._status = status
        self.targets: list[str] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(accept_into(self._tasks, self._writers, self._serve), "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_server(self._server, self._tasks, self._writers)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.decode("ascii").split(" ", 2)
        assert method == "CONNECT"
        self.targets.append(target)
        if self._status != HTTPStatus.OK:
            writer.write(f"HTTP/1.1 {self._status} Refused\r\nContent-Length: 0\r\n\r\n".encode())
            return
        host, _, port = target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        finally:
            far_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()
