"""Answers with rows while a request arrives.

Reading and writing go on at the same time (RFC 9112, section 9.3, allows an answer before the end of the request). The
work ends when the client disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from doi_proxy.errors import FAILURES, as_failure
from doi_proxy.list_formats import writing
from doi_proxy.list_formats.body import BodyBuffer
from doi_proxy.web.freshness import NO_STORE
from doi_proxy.web.media_types import CSV, JSON, NDJSON
from doi_proxy.web.problem import error_problem
from doi_proxy.web.responses import Receive, Reply, Scope, Send

#: Seconds after which the head is sent without a row. Until then, an error has a status of its own.
HEAD_AFTER: Final = 1.0
#: Another: a function that ends the connection. What was not sent is lost.
ABORT: Final = "doi_proxy.abort"
#: Media types in Accept, in the order of preference of this resolver.
_ACCEPTED: Final = {
    NDJSON: NDJSON, "application/ndjson": NDJSON, "application/jsonl": NDJSON, CSV: CSV, JSON: JSON,
}  # fmt: skip


#: Charges a client for a cost beyond one request. See Admission.charge.
Charge = Callable[[str, float], None]


class StreamedAnswer(Response):
    """An answer that is sent while its request arrives. It ends when the client leaves."""

    #: Bytes of the request that are received before they are read.
    read_ahead_bytes = 64 * 1024

    def __init__(self, charge: Charge) -> None:
        """`charge` is called at the end with the address of the client, and with the rows, or the kilobytes of the
        request as received or unpacked, whichever are more.
        """
        super().__init__()
        self._charge = charge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        body = BodyBuffer(self.read_ahead_bytes)
        # A member of the ASGI scope: a function that returns whether the client has left. Not every server sets it.
        output = Output(send, scope.get("doi_proxy.is_gone", lambda: False), scope.get(ABORT, lambda: None))
        filling = asyncio.create_task(body.fill(receive))
        answering = asyncio.create_task(self._answer(body, output))
        try:
            await asyncio.wait((filling, answering), return_when=asyncio.FIRST_COMPLETED)
        finally:
            filling.cancel()
            if not answering.done():
                answering.cancel()  # the client has left, or the server stops
            await asyncio.gather(filling, answering, return_exceptions=True)
            if client := scope.get("client"):
                self._charge(client[0], max(output.rows, max(body.received, output.unpacked) // 1024))
        error = None if answering.cancelled() else answering.exception()
        if isinstance(error, FAILURES):
            await _send_reply(error_problem(as_failure(error)), output.send)
        elif error is not None:
            raise error

    async def _answer(self, body: BodyBuffer, output: Output) -> None:
        """Send the whole answer. An error before its first byte is raised."""
        raise NotImplementedError


@dataclass(slots=True)
class Output:
    """Where an answer goes. `is_gone` is whether the client has left; `abort` ends it."""

    send: Send
    is_gone: Callable[[], bool]
    abort: Callable[[], None] = lambda: None
    #: The rows of the answer so far, and the bytes of a text that were unpacked.
    rows: int = 0
    unpacked: int = 0

    async def count(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces of a text, counted: one that is compressed costs what it unpacks to."""
        async for piece in pieces:
            self.unpacked += len(piece)
            yield piece

    @asynccontextmanager
    async def open_rows(self, media_type: str, fields: Sequence[str]) -> AsyncIterator[RowStream]:
        """Where the body writes its rows. An error before the head is raised, a later one ends the answer."""
        writer = make_writer(media_type, fields)
        rows, end = RowStream(self, writer), b""
        early = asyncio.create_task(rows.start_after(HEAD_AFTER))
        try:
            yield rows
        except FAILURES as error:
            if not rows.is_started:
                raise
            failure = as_failure(error)
            end = writer.fail(failure.status, failure.message)
        finally:
            early.cancel()
            await asyncio.gather(early, return_exceptions=True)
        if rows.is_started and not self.is_gone():
            await self.send({"type": "http.response.body", "body": end + writer.closing})
        elif not rows.is_started:
            content = (b"content-type", writer.media_type.encode())
            await _send_reply(Reply(200, (content,), writer.opening + writer.closing, (NO_STORE,)), self.send)


class RowStream:
    """The answer of one writer. Its head is sent before the first bytes, or after a time without any."""

    def __init__(self, output: Output, writer: writing.RowWriter) -> None:
        self._output = output
        self._writer = writer
        self._sending = asyncio.Lock()
        self.is_started = False

    async def start_after(self, seconds: float) -> None:
        """Send the head after a time. A front proxy waits for a head, not for rows."""
        await asyncio.sleep(seconds)
        if not self.is_started:
            await self._send(b"")

    async def write(self, group: Sequence[writing.Members]) -> bool:
        """Send rows, after the head. Returns whether the client still reads them."""
        self._output.rows += len(group)
        await self._send(self._writer.write(group))
        return not self._output.is_gone()

    async def _send(self, piece: bytes) -> None:
        async with self._sending:
            if not self.is_started:
                self.is_started = True
                await _start(self._writer, self._output.send)
                piece = self._writer.opening + piece
            await self._output.send({"type": "http.response.body", "body": piece, "more_body": True})


def make_writer(media_type: str, fields: Sequence[str]) -> writing.RowWriter:
    """The writer of rows for a media type of an answer."""
    if media_type == JSON:
        return writing.JsonArrayWriter()
    return writing.TableWriter(fields) if media_type == CSV else writing.JsonLinesWriter()


async def _start(writer: writing.RowWriter, send: Send) -> None:
    headers = [
        (b"content-type", writer.media_type.encode()),
        NO_STORE,
        # nginx must not buffer the answer (ngx_http_proxy_module, proxy_buffering).
        (b"x-accel-buffering", b"no"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _send_reply(reply: Reply, send: Send) -> None:
    length = (b"content-length", b"%d" % len(reply.body))
    headers = [*reply.headers, *reply.freshness, length]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def choose_output(output: str | None, accept: str | None, body: str) -> str:
    """The media type of the answer: `output`, else the one that Accept names first, else JSON for a JSON `body`."""
    if output is not None:
        return {"ndjson": NDJSON, "csv": CSV, "json": JSON}[output]
    named = [entry.partition(";")[0].strip() for entry in (accept or "").lower().split(",", 20)]
    return next((_ACCEPTED[entry] for entry in named if entry in _ACCEPTED), JSON if body == JSON else NDJSON)
