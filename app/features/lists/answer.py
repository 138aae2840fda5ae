"""Answers a list while it arrives: rows are sent as soon as they are known.

Reading and writing go on at the same time (RFC 9112, section 9.3, allows an answer before the end of the request). The
work ends when the client disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from starlette.responses import Response

from app.errors import DoiProxyError, Quota
from app.features.fair_lock import FairLock
from app.features.lists.batch import Batches, BatchInput
from app.features.lists.body import (
    BodyBuffer,
    BodyFormat,
    ListCounter,
    ListLimits,
    decompress_body,
    read_list_body,
)
from app.features.lists.errors import TooManyBatches
from app.features.lists.extraction import Extraction
from app.features.lists.name_lookup import BatchOptions
from app.features.lists.verdict import ListRow, read_input
from app.features.lists.writing import JsonArrayWriter, JsonLinesWriter, Members, RowWriter, TableWriter
from app.rationing.shares import SharedPlaces
from app.web.freshness import NO_STORE
from app.web.media_types import CSV, JSON
from app.web.problem import error_problem
from app.web.responses import Receive, Reply, Scope, Send

#: Seconds after which the head is sent without a row. Until then, an error has a status of its own.
HEAD_AFTER: Final = 1.0
#: A member of the ASGI scope: a function that returns whether the client has left. Not every server sets it.
IS_GONE: Final = "doi_proxy.is_gone"
#: Another: a function that ends the connection. What was not sent is lost.
ABORT: Final = "doi_proxy.abort"
#: The name of the limit, in RateLimit headers and in metrics.
BATCHES: Final = "batches"
#: The Retry-After of a refusal, in seconds. Lists take from a second to hours.
_RETRY_SECONDS: Final = 10.0
_GAVE_WAY: Final = "Another client needed the place of this list; send the names without a row again."
#: Seconds of waiting for its client after which a list may give way.
IDLE_AFTER: Final = 1.0
#: A list of at most so many bytes is short: 100 names have fewer.
SHORT_BYTES: Final = 8_192
#: Places of short lists for each place of others. A short list needs little memory.
SHORT_PLACES: Final = 2
#: Seconds after which a list may give way to a client with fewer lists if all places are taken. A short one does after
#: fewer seconds, if it has less than a row for each: others end soon, and in a crowd none would end if they gave way.
FAIR_SECONDS: Final = 60.0
FAIR_SHORT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What a client wants to know, and in which form."""

    client: str
    form: BodyFormat
    options: BatchOptions
    #: The media type of the answer.
    output: str
    #: The members of each row.
    fields: tuple[str, ...]
    #: Whether the body is running text.
    extracts: bool = False
    #: The Content-Length of the list.
    length: int | None = None


class OpenList:
    """The place of a list that is being answered. `abort` ends its connection. `length` is in bytes, if it is known."""

    def __init__(
        self, body: BodyBuffer, abort: Callable[[], None] = lambda: None, *, length: int | None = None
    ) -> None:
        self.is_short = length is not None and length <= SHORT_BYTES
        self._body = body
        self._abort = abort
        self._rows = 0
        self._gave_way = self._is_sending = False
        self._timeout: asyncio.Timeout | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it waits for its client alone: for more than IDLE_AFTER seconds in all. See Holder."""
        return self._body.is_awaited and self._body.waited > IDLE_AFTER

    @property
    def is_overdue(self) -> bool:
        """See Holder. The client of a list that ends so sends the rest again, and gets a place in turn."""
        age = self._body.age
        return age > max(FAIR_SHORT_SECONDS, self._rows) if self.is_short else age > FAIR_SECONDS

    def speed(self) -> float:
        """Bytes of input a second. Only the time in which this service waited for the input counts."""
        return self._body.speed

    def give_way(self) -> None:
        """See Holder. A client that does not read would keep the list, without a place, for WRITE_TIMEOUT seconds."""
        self._gave_way = True
        if self._is_sending:
            self._abort()
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def limit(self, groups: AsyncGenerator[list[ListRow]]) -> AsyncGenerator[list[ListRow]]:
        """The groups, until the list gives way. Raises TooManyBatches then."""
        while not self._gave_way:
            try:
                async with asyncio.timeout(None) as self._timeout:
                    group = await anext(groups, None)
            except TimeoutError:
                break
            finally:
                self._timeout = None
            if group is None:
                return
            self._rows += len(group)
            self._is_sending = True
            yield group
            self._is_sending = False
        raise _refuse(_GAVE_WAY, 1)


class OpenBatches:
    """The places of the lists that are being answered. A client alone may have all of them.

    Short lists have places of their own, so long ones never keep them out.
    """

    def __init__(self, most: int, count_refusal: Callable[[str], None]) -> None:
        """`count_refusal` is called with the name of the limit."""
        # An eviction must leave the newcomer the smaller share: a list under way is worth more than one that begins.
        self._places = SharedPlaces[OpenList](most, least_lead=2)
        self._short = SharedPlaces[OpenList](SHORT_PLACES * most, least_lead=2)
        self._count_refusal = count_refusal

    def __len__(self) -> int:
        return len(self._places) + len(self._short)

    @contextmanager
    def enter(self, client: str, place: OpenList) -> Iterator[None]:
        """Hold a place for a client. Raises TooManyBatches."""
        places = self._short if place.is_short else self._places
        if not places.enter(client, place):
            self._count_refusal(BATCHES)
            most = places.most
            raise _refuse(f"This resolver is answering {most} lists; wait for one of them, or try again later.", most)
        try:
            yield
        finally:
            places.leave(place)


def _refuse(message: str, amount: int) -> TooManyBatches:
    return TooManyBatches(message, quota=Quota(BATCHES, amount, int(_RETRY_SECONDS)), retry_after=_RETRY_SECONDS)


@dataclass(frozen=True, slots=True)
class BatchService:
    """What all lists share."""

    batches: Batches
    open: OpenBatches
    limits: ListLimits
    #: Of all texts: see find_names_of.
    text_turns: FairLock = field(default_factory=FairLock)


class StreamedAnswer(Response):
    """An answer that is sent while its request arrives. It ends when the client leaves."""

    def __init__(self, read_ahead_bytes: int) -> None:
        super().__init__()
        self._read_ahead_bytes = read_ahead_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        body = BodyBuffer(self._read_ahead_bytes)
        output = Output(send, scope.get(IS_GONE, lambda: False), HEAD_AFTER, scope.get(ABORT, lambda: None))
        filling = asyncio.create_task(body.fill(receive))
        answering = asyncio.create_task(self._answer_error(body, output))
        try:
            await asyncio.wait((filling, answering), return_when=asyncio.FIRST_COMPLETED)
        finally:
            filling.cancel()
            if not answering.done():
                answering.cancel()  # the client has left, or the server stops
            await asyncio.gather(filling, answering, return_exceptions=True)
        if not answering.cancelled():
            answering.result()

    async def _answer_error(self, body: BodyBuffer, output: Output) -> None:
        try:
            await self._answer(body, output)
        except DoiProxyError as error:
            await _send_reply(error_problem(error), output.send)

    async def _answer(self, body: BodyBuffer, output: Output) -> None:
        """Send the whole answer. An error before its first byte is raised."""
        raise NotImplementedError


class RowsAnswer(StreamedAnswer):
    """The answer to one list."""

    def __init__(self, service: BatchService, request: BatchRequest) -> None:
        super().__init__(service.limits.read_ahead_bytes)
        self._service = service
        self._request = request
        self._extraction = Extraction(partial(service.text_turns.hold, request.client)) if request.extracts else None

    async def _answer(self, body: BodyBuffer, output: Output) -> None:
        # What a compressed list is large in is not known before its end.
        place = OpenList(body, output.abort, length=None if self._request.form.is_gzip else self._request.length)
        with self._service.open.enter(self._request.client, place):
            inputs = self._read_inputs(body)
            async with aclosing(self._service.batches.groups(inputs, self._request.options)) as groups:
                rows = ([self._members(row) for row in group] async for group in place.limit(groups))
                writer = make_writer(self._request.output, self._request.fields)
                await output.write_rows(rows, writer)

    async def _read_inputs(self, body: BodyBuffer) -> AsyncIterator[BatchInput]:
        limits, form = self._service.limits, self._request.form
        if self._extraction is None:
            async for item in read_list_body(body.pieces(), form, limits):
                yield read_input(item)
            return
        counter = ListCounter(limits)
        async for found in self._extraction.find(decompress_body(body.pieces(), limits, is_gzip=form.is_gzip)):
            counter.count_item()
            yield found.name.text

    def _members(self, row: ListRow) -> Members:
        members = row.members()
        if self._extraction is not None:
            position = self._extraction.next_position()
            members |= {"input": position["text"], **position}
        return {name: members.get(name) for name in self._request.fields}


@dataclass(frozen=True, slots=True)
class Output:
    """Where an answer goes. `is_gone` is whether the client has left; `abort` ends it. `head_after` is in seconds."""

    send: Send
    is_gone: Callable[[], bool]
    head_after: float
    abort: Callable[[], None] = lambda: None

    async def write_rows(self, groups: AsyncIterable[Sequence[Members]], writer: RowWriter) -> None:
        """Send each group of rows. An error before the head is raised, a later one ends the answer."""
        rows, end = _Rows(self.send, writer), b""
        early = asyncio.create_task(rows.start_after(self.head_after))
        try:
            async for group in groups:
                await rows.write(writer.write(group))
                if self.is_gone():
                    return
        except DoiProxyError as error:
            if not rows.is_started:
                raise
            end = writer.fail(error.status, error.message)
        finally:
            early.cancel()
            await asyncio.gather(early, return_exceptions=True)
        if rows.is_started:
            await self.send({"type": "http.response.body", "body": end + writer.end()})
        else:
            await _send_reply(_empty(writer), self.send)


class _Rows:
    """The answer of one writer. Its head is sent before the first bytes, or after a time without any."""

    def __init__(self, send: Send, writer: RowWriter) -> None:
        self._send = send
        self._writer = writer
        self._sending = asyncio.Lock()
        self.is_started = False

    async def start_after(self, seconds: float) -> None:
        """Send the head after a time. A front proxy waits for a head, not for rows."""
        await asyncio.sleep(seconds)
        if not self.is_started:
            await self.write(b"")

    async def write(self, piece: bytes) -> None:
        """Send bytes of rows, after the head."""
        async with self._sending:
            if not self.is_started:
                self.is_started = True
                await _start(self._writer, self._send)
                piece = self._writer.begin() + piece
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})


def make_writer(media_type: str, fields: Sequence[str]) -> RowWriter:
    """The writer of rows for a media type of an answer."""
    if media_type == JSON:
        return JsonArrayWriter()
    return TableWriter(fields) if media_type == CSV else JsonLinesWriter()


def _empty(writer: RowWriter) -> Reply:
    """An answer without a row."""
    content = (b"content-type", writer.media_type.encode())
    return Reply(200, (content,), writer.begin() + writer.end(), (NO_STORE,))


async def _start(writer: RowWriter, send: Send) -> None:
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
