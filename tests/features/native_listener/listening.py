"""A service with its native listener, and clients of it.

async with listening() as proxy:
    proxy.upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
    response = await proxy.resolve("10.1000/182", by="tcp")
    assert response.code == 1
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from handle_protocol.json_sites import read_site_file
from handle_protocol.transport.stream import MESSAGE
from handle_protocol.wire.message import Filters, OpFlag, Query, Response, decode_response, encode_query
from handle_protocol.wire.site_value import ServiceSite
from tests.server.served import Served
from tests.world.loop import network_of

TRANSPORTS: Final = ("udp", "tcp", "http")
#: The address of a client on this machine. By UDP, it cannot be forged.
LOCAL: Final = "127.0.0.1"
#: Virtual seconds after which no packet comes any more.
_LONGEST: Final = 60.0
_LISTENER: Final = "native_listen"


class Packets(asyncio.DatagramProtocol):
    """The packets that arrive at an address."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """See asyncio.DatagramProtocol."""
        self.arrived.put_nowait(data)


class Listening:
    """A service whose native listener is at `port`."""

    def __init__(self, proxy: Served) -> None:
        self.proxy, self.upstream, self.clock = proxy, proxy.upstream, proxy.clock
        self.connections, self.network = proxy.connections, network_of(asyncio.get_running_loop())
        self.port = proxy.address(listener=_LISTENER)[1]

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

    async def exchange(self, request: bytes, *, by: str = "tcp", client: str = LOCAL) -> bytes | None:
        """The bytes of an answer; None if UDP drops the request."""
        if by == "udp":
            return await self._exchange_packet(request, client)
        if by == "tcp":
            return await self.send(request, client=client)
        return (await self.send(post(request), client=client)).partition(b"\r\n\r\n")[2]

    async def send(self, *pieces: bytes, end: bool = False, client: str = LOCAL) -> bytes:
        """Send pieces by TCP; all that arrives until the listener closes its side."""
        return await self.proxy.exchange(*pieces, end=end, to=_LISTENER, client=client)

    async def connect(self, client: str | None = LOCAL) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of a client."""
        return await self.proxy.connect(_LISTENER, client)

    def send_packet(self, request: bytes, sender: tuple[str, int]) -> None:
        """Send a packet by UDP, from an address that can be forged."""
        self.network.send_datagram(request, sender, ("127.0.0.1", self.port))

    async def _exchange_packet(self, request: bytes, client: str) -> bytes | None:
        packets = Packets()
        sender = self.network.open_datagrams(packets, (client, 0), ("127.0.0.1", self.port))
        sender.sendto(request)
        try:
            return await asyncio.wait_for(packets.arrived.get(), _LONGEST)
        except TimeoutError:
            return None
        finally:
            sender.close()


def post(request: bytes, kind: str = MESSAGE) -> bytes:
    """The bytes of a POST with a message, after which the connection ends."""
    head = f"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {len(request)}"
    return head.encode() + b"\r\n\r\n" + request


def read_manual(port: int) -> tuple[ServiceSite, ...]:
    """The sites of the file in docs/native.md, with this port."""
    manual = (Path(__file__).parents[3] / "docs/native.md").read_text("utf-8")
    (block,) = re.findall(r"```json\n(.*?)```", manual, re.DOTALL)
    return read_site_file(block.replace("2641", str(port)).encode()).sites


@asynccontextmanager
async def listening(**settings: Any) -> AsyncIterator[Listening]:
    """Start a service with these settings and its native listener, and stop it at the end."""
    async with Served(**{_LISTENER: "127.0.0.1:0", **settings}) as proxy:
        yield Listening(proxy)
