"""A client with an address, which sends HTTP/1.1 over the network in memory and keeps its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import httptools

from tests.world.answer import Reply
from tests.world.loop import network_of
from tests.world.network import Address, Wire

NO_FIELDS: Final[Mapping[str, str]] = {}
#: The origin that clients name.
ORIGIN: Final = "http://doi.example.org"


class Connection(asyncio.Protocol):
    """One connection of a client: one request at a time. Raises ConnectionError if the server ends it before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.wire: asyncio.Transport
        self.is_open = True
        self._began = 0.0
        #: When it had its last answer, or was opened.
        self.idle_since = loop.time()
        self._answer: asyncio.Future[Reply] | None = None

    def send(self, head: bytes, body: bytes, method: str, pause: float) -> asyncio.Future[Reply]:
        """Send a request, the second half of its head after a pause. The future has its answer."""
        self._began, self._answer = self._loop.time(), self._loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._fields: list[tuple[str, str]] = []
        self._body: list[bytes] = []
        self._is_head = method == "HEAD"
        if pause:
            self.wire.write(head[: len(head) // 2])
            self._loop.call_later(pause, self._send_rest, head[len(head) // 2 :] + body)
        else:
            self.wire.write(head + body)
        return self._answer

    def _send_rest(self, data: bytes) -> None:
        self._began = self._loop.time()
        self.wire.write(data)

    def connection_made(self, transport: Any) -> None:
        self.wire = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        if self._is_head:
            self._settle()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if not self._is_head:
            self._settle()

    def _settle(self) -> None:
        self.idle_since = self._loop.time()
        if self._answer is not None and not self._answer.done():
            took = self.idle_since - self._began
            status = self._parser.get_status_code()
            self._answer.set_result(Reply(status, tuple(self._fields), b"".join(self._body), took))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server closed the connection"))

    @property
    def ends(self) -> bool:
        """Whether the server is closing it."""
        return isinstance(self.wire, Wire) and self.wire.other.is_closing()

    def leave(self) -> None:
        """Close the connection, as a client does that does not wait for its answer."""
        self.is_open = False
        self.wire.abort()


class Asked:
    """A request under way."""

    def __init__(
        self, client: Client, connection: Connection, method: str, raw: bytes, answer: asyncio.Future[Reply]
    ) -> None:
        self._client, self._connection = client, connection
        self.method, self.raw = method, raw
        self.answer = answer
        answer.add_done_callback(self._end)

    def _end(self, answer: asyncio.Future[Reply]) -> None:
        if not answer.cancelled() and answer.exception() is None and self._connection.is_open:
            self._client.idle.append(self._connection)

    @property
    def target(self) -> str:
        """The path and the query, as text."""
        return self.raw.decode()

    @property
    def reply(self) -> Reply | None:
        """The answer. None if there is none yet, or if the connection was closed."""
        answer = self.answer
        return answer.result() if answer.done() and not answer.cancelled() and answer.exception() is None else None

    def cancel(self) -> None:
        """Go away without an answer."""
        if not self.answer.done():
            self.answer.cancel()
            self._connection.leave()

    def close(self) -> None:
        """End the connection."""
        self._connection.leave()


class Client:
    """See the module."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Address, address: str | None) -> None:
        self._loop, self._server, self.address = loop, server, address
        self.idle: list[Connection] = []

    def ask(
        self,
        target: str | bytes,
        headers: Mapping[str, str] = NO_FIELDS,
        *,
        method: str = "GET",
        body: bytes = b"",
        pause: float = 0.0,
        version: str = "1.1",
    ) -> Asked:
        """Send a request; "_" in the names of header fields is "-". `pause` seconds pass within its head.

        Raises ConnectionRefusedError.
        """
        connection = self._connect()
        fields = {
            "host": ORIGIN.removeprefix("http://"),
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        if body and "transfer-encoding" not in fields:
            fields["content-length"] = str(len(body))
        raw = target.encode() if isinstance(target, str) else target
        lines = "".join(f"{name}: {text}\r\n" for name, text in fields.items()).encode("latin-1")
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method.encode(), raw, version.encode(), lines)
        answer = connection.send(head, body, method, pause)
        return Asked(self, connection, method, raw, answer)

    def _connect(self) -> Connection:
        while self.idle:
            connection = self.idle.pop()
            # A client whose connection the server is closing would repeat the request on another one. If it has been
            # idle for longer than nginx keeps one, the server may close it while a request is on its way.
            if connection.is_open and not connection.ends and self._loop.time() - connection.idle_since < 60.0:
                return connection
        connection = Connection(self._loop)
        network_of(self._loop).connect(connection, self._server, self.address)
        return connection

    async def connect(self) -> None:
        """Connect in real time, over a socket of the system: from an address of this machine, others do not count."""
        own = (self.address, 0) if self.address and self.address.startswith("127.") else None
        _, connection = await self._loop.create_connection(
            lambda: Connection(self._loop), *self._server, local_addr=own
        )
        self.idle.append(connection)
