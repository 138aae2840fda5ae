"""An agency's metadata server, which can be hostile, and the records that lead to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.fake_upstream import FakeUpstream
from tests.values import value

TITLE: Final = "On the electrodynamics of moving bodies"
CSL: Final = "application/vnd.citationstyles.csl+json"


def item(title: Any = TITLE, family: Any = "Einstein", year: Any = 1905) -> bytes:
    """A work as CSL JSON."""
    members = {"title": title, "author": [{"family": family}], "issued": {"date-parts": [[year, 6, 30]]}}
    return json.dumps(members).encode()


def answer(body: bytes, *, status: str = "200 OK", fields: str = f"Content-Type: {CSL}\r\n") -> bytes:
    """An answer as it is sent."""
    head = f"HTTP/1.1 {status}\r\n{fields}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


class Agency:
    """Sends `reply` to each request, after `free` is set. `requests` are the heads that arrived."""

    def __init__(self) -> None:
        self.reply = answer(item())
        self.requests: list[bytes] = []
        self.free = asyncio.Event()
        self.free.set()
        #: The seconds that it takes.
        self.seconds = 0.0
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        self._writers.add(writer)
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            await self.free.wait()
            if self.seconds:
                await asyncio.sleep(self.seconds)
            writer.write(self.reply)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def drop(self) -> None:
        """Close what is open."""
        self.free.set()
        for writer in list(self._writers):
            writer.close()


@asynccontextmanager
async def open_agency() -> AsyncIterator[Agency]:
    """A running server."""
    agency = Agency()
    server = await asyncio.start_server(agency.serve, "127.0.0.1", 0)
    agency.port = server.sockets[0].getsockname()[1]
    try:
        async with server:
            yield agency
            agency.drop()
    finally:
        agency.drop()


def put_prefix(upstream: FakeUpstream, url: str) -> None:
    """The records that lead the metadata of 10.5555 to a server."""
    location = f'<locations><location weight="0" http_role="conneg" href_template="{url}/{{hdl}}"/></locations>'
    upstream.put("10.5555", [value(20, "HS_NAMESPACE", "<HS_NAMESPACE><locs>10.SERV/A</locs></HS_NAMESPACE>")])
    upstream.put("10.SERV/A", [value(4, "10320/loc", location)])
