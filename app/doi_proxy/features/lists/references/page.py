"""`/references`: the form, and the page about what was sent. Nothing of it is stored or logged."""

from __future__ import annotations

import asyncio
import html
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any, Final

from fastapi import FastAPI, Request, Response

from doi_proxy import errors
from doi_proxy.endpoints import language_of, text_headers
from doi_proxy.features.feature import Opened
from doi_proxy.features.lists.answer import BATCHES, BatchService, OpenBatches, OpenList, read_length
from doi_proxy.features.lists.batch import BatchInput, BatchOptions
from doi_proxy.features.lists.feature import TooManyBatches
from doi_proxy.features.lists.references.result import (
    MAX_REFERENCES,
    Bibliography,
    Result,
    TooManyReferences,
    correct,
    describe,
    describe_error,
    list_corrections,
    read_bibliography,
    read_form,
    read_typed_text,
)
from doi_proxy.features.lists.verdict import ListRow, Verdict
from doi_proxy.list_formats.body import BodyBuffer
from doi_proxy.list_formats.entries import ListItem
from doi_proxy.list_formats.streamed_answer import Output, StreamedAnswer
from doi_proxy.upstream.source import Priority
from doi_proxy.web.freshness import NO_STORE, VARY_LANGUAGE
from doi_proxy.web.negotiation import write_date
from doi_proxy.web.pages import choose_wait
from doi_proxy.web.redirect import Face
from doi_proxy.web.request_path import Header, client_of
from doi_proxy.web.responses import HTML, PAGE_POLICY, quota_headers

PATH: Final = "/references"
#: Limit of a form, in bytes. A document with pictures is larger; its text can be pasted.
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
#: Seconds in which a form that has arrived is read, and those after which its page waits for no more answers: 2,000
#: new names take 200 at the usual budget. The page arrives meanwhile: a front proxy waits for its next piece.
READ_TIMEOUT: Final = 10.0
CHECK_TIMEOUT: Final = 300.0
#: Where the results begin in the page.
_MARK: Final = b"<!--results-->"
#: Characters that are escaped in one turn of the event loop.
_PIECE: Final = 65_536


class ReferencesPage:
    """Shows the form and the results."""

    def __init__(self, service: BatchService, face: Face, opened: Opened) -> None:
        """`opened` counts its requests."""
        self._service = service
        self._face = face
        self._admit, self.charge = opened.admit, opened.charge
        # Refused forms whose text is read at the same time, so that the reader gets it back.
        self._returned = OpenBatches(16, lambda limit: None)

    def add_to(self, app: FastAPI) -> None:
        """Answer the path in an application."""

        @app.api_route(PATH, methods=["GET", "HEAD"], include_in_schema=False)
        async def show_form(request: Request) -> Response:
            error = self.refuse(request)
            body = self.render(language_of(request, self._face.pages), error=error)
            return Response(body, 200 if error is None else error.status, text_headers(*_headers_of(error)))

        @app.api_route(PATH, methods=["POST"], include_in_schema=False)
        async def check_references(request: Request) -> Response:
            return _CheckedPage(self, request, language_of(request, self._face.pages), self.refuse(request))

    def refuse(self, request: Request) -> errors.DoiProxyError | None:
        """Count a request. Returns why its client may not have an answer."""
        try:
            self._admit(_address(request))
        except errors.DoiProxyError as error:
            return error
        return None

    def render(
        self, language: str, result: Result | None = None, error: errors.DoiProxyError | None = None, *, total: int = 0
    ) -> bytes:
        """The page without the text of its form. With a `total`, it is sent while so many references are checked."""
        wait = choose_wait(max(1, ceil(error.retry_after))) if isinstance(error, errors.TooManyRequests) else None
        facts: dict[str, Any] = {
            "result": result,
            "total": total,
            "problem": describe_error(error),
            "wait": wait,
            "write_date": write_date,
            "compares": self._service.batches.compare is not None,
        }
        return self._face.pages.render("references", self._face.link, language, "references.title", **facts)

    async def read_back(
        self, request: Request, body: BodyBuffer, received: bytearray, error: errors.DoiProxyError
    ) -> str:
        """The text of a form that was refused. A refusal of the client comes before its form is read."""
        if isinstance(error, errors.TooManyRequests):
            client = client_of(_address(request))
            with suppress(*errors.FAILURES, TimeoutError), self._returned.enter(client, OpenList(body)):
                async with asyncio.timeout(5.0):
                    await _collect(body, received)
        await asyncio.sleep(0)  # to read 4 MB takes 15 ms, also before the refusal
        return read_typed_text(request.headers.get("content-type", ""), received)

    def describe_progress(self, language: str, done: int, total: int) -> bytes:
        """A line of the progress."""
        text = self._face.pages.texts(language)("references.progress", done=done, all=total)
        return f'<p role="status">{text}</p>\n'.encode()

    async def read_form(self, request: Request, body: BodyBuffer, received: bytearray) -> Bibliography:
        """The references of a form, which is added to `received`. Raises DoiProxyError."""
        client = client_of(_address(request))
        await _collect(body, received)
        began = asyncio.get_running_loop().time()
        sent = read_form(request.headers.get("content-type", ""), received)
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout_at(began + READ_TIMEOUT):
                return await read_bibliography(sent, partial(self._service.text_turns.hold, client))
        except TimeoutError:
            # The Retry-After of a form that was not read in time, in seconds.
            quota = errors.Quota(BATCHES, 1, 10)
            message = "This resolver reads many texts now; try again later."
            raise TooManyBatches(message, quota=quota, retry_after=10.0) from None

    def enter(self, request: Request, body: BodyBuffer) -> AbstractContextManager[OpenList]:
        """Hold a place among the lists. Raises TooManyBatches."""
        place = OpenList(body, length=read_length(request.headers))
        return _hold(place, self._service.open.enter(client_of(_address(request)), place))

    async def look_up(
        self, request: Request, found: Bibliography, place: OpenList, rows: list[ListRow], due: float
    ) -> None:
        """Add the row of each reference to `rows`. What is not answered when it is due is unverified."""
        matches = self._service.batches.compare is not None
        client = client_of(_address(request))
        options = BatchOptions(
            client, suggests=True, checks=True, matches=matches, agency="none", fetches=Priority.PERSON, due=due
        )
        # All names are looked up before the slowest work has arrived.
        batches = replace(self._service.batches, bounds=replace(self._service.batches.bounds, window=MAX_REFERENCES))
        try:
            # The checks of suggestions have their own time.
            groups = batches.groups(_stream(found), options)
            async with asyncio.timeout_at(due + READ_TIMEOUT), aclosing(groups):
                async for group in place.limit(groups):
                    rows += group
        except (TimeoutError, TooManyBatches) as error:
            # A list that has rows keeps them when it gives way.
            if isinstance(error, TooManyBatches) and not rows:
                raise
            rows += [_too_late(item) for item in found.inputs[len(rows) :]]

    async def describe(self, found: Bibliography, rows: Sequence[ListRow]) -> Result:
        """The result of the rows, in many turns of the event loop."""
        described = []
        for number, (row, title) in enumerate(zip(rows, found.titles, strict=True)):
            described.append(describe(row, title, is_running_text=found.is_running_text))
            # References that are described in one turn of the event loop.
            if number % 50 == 49:
                await asyncio.sleep(0)
        corrections = list_corrections(found.text, described, has_lines=not found.file_name.endswith(".json"))
        await asyncio.sleep(0)
        result = Result(
            tuple(described), b"", found.file_name, left_out=found.left_out, entries=found.entries, column=found.column
        )
        if not corrections:
            return result
        return replace(result, corrected=correct(found.text, corrections).encode())


@contextmanager
def _hold(place: OpenList, holding: AbstractContextManager[None]) -> Iterator[OpenList]:
    with holding:
        yield place


class _CheckedPage(StreamedAnswer):
    """The answer to a form. The work ends when the reader leaves."""

    def __init__(
        self, page: ReferencesPage, request: Request, language: str, refusal: errors.DoiProxyError | None
    ) -> None:
        super().__init__(page.charge)
        self.read_ahead_bytes = MAX_BODY_BYTES if refusal is None else _PIECE
        self._page = page
        self._request = request
        self._language = language
        self._refusal = refusal

    async def _answer(self, body: BodyBuffer, output: Output) -> None:
        error, received = self._refusal, bytearray()
        if error is None:
            try:
                with self._page.enter(self._request, body) as place:
                    found = await self._page.read_form(self._request, body, received)
                    await self._answer_checked(found, place, output)
                return
            except errors.FAILURES as raised:
                error = errors.as_failure(raised)
        text = await self._page.read_back(self._request, body, received, error)
        await self._send_whole(output, await _fill(self._page.render(self._language, None, error), text), error)

    async def _answer_checked(self, found: Bibliography, place: OpenList, output: Output) -> None:
        """Send the page about what was read: at once, or after a time with its progress until it is complete."""
        loop = asyncio.get_running_loop()
        rows: list[ListRow] = []
        due = loop.time() + CHECK_TIMEOUT
        looking = asyncio.create_task(self._page.look_up(self._request, found, place, rows, due))
        try:
            is_begun = await self._show_progress(looking, found, rows, output)
            await looking
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        output.rows += len(rows)
        result = await self._page.describe(found, rows)
        # The page of 2,000 references took 80 ms of one turn, and the URL of a corrected text of 4 MiB 12 more.
        page = await asyncio.to_thread(self._page.render, self._language, result)
        if not is_begun:
            await self._send_whole(output, await _fill(page, found.text), None)
            return
        last = self._page.describe_progress(self._language, len(rows), len(found.inputs))
        for piece in await _fill(last + b"</div>\n" + page[page.index(_MARK) :], found.text):
            await output.send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await output.send({"type": "http.response.body", "body": b""})

    async def _show_progress(
        self, looking: asyncio.Task[None], found: Bibliography, rows: Sequence[ListRow], output: Output
    ) -> bool:
        """Send the beginning of the page and its progress while names are looked up. Returns whether it has begun."""
        total = len(found.inputs)
        # Seconds after which the page begins without its results, and those between two lines of its progress.
        await asyncio.wait({looking}, timeout=1.0)
        if looking.done():
            return False
        page = self._page.render(self._language, total=total)
        # nginx must not buffer the page (ngx_http_proxy_module, proxy_buffering).
        await output.send(
            {"type": "http.response.start", "status": 200, "headers": [*_HEADERS, (b"x-accel-buffering", b"no")]}
        )
        piece = page[: page.index(_MARK)]
        while not looking.done():
            piece += self._page.describe_progress(self._language, len(rows), total)
            await output.send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = b""
            await asyncio.wait({looking}, timeout=2.0)
        return True

    async def _send_whole(self, output: Output, pieces: Sequence[bytes], error: errors.DoiProxyError | None) -> None:
        status = 200 if error is None else error.status
        headers = [*_headers_of(error), (b"content-length", b"%d" % sum(map(len, pieces)))]
        await output.send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await output.send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await output.send({"type": "http.response.body", "body": b""})


_HEADERS: Final = (HTML, *PAGE_POLICY, VARY_LANGUAGE, NO_STORE)


def _headers_of(error: errors.DoiProxyError | None) -> tuple[Header, ...]:
    more = quota_headers(error.quota, error.retry_after) if isinstance(error, errors.TooManyRequests) else ()
    return (*_HEADERS, *more)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


async def _fill(page: bytes, text: str) -> list[bytes]:
    """The pieces of a page with a text in its form. A text of 4 MB is escaped in many turns of the event loop."""
    head, end, tail = page.partition(b"</textarea>")
    pieces = [head]
    for start in range(0, len(text), _PIECE):
        pieces.append(html.escape(text[start : start + _PIECE]).encode("utf-8", "replace"))
        await asyncio.sleep(0)
    return [*pieces, end + tail]


async def _collect(body: BodyBuffer, received: bytearray) -> None:
    """Add a body to what was received. Raises TooManyReferences."""
    async for piece in body.pieces():
        received += piece
        if len(received) > MAX_BODY_BYTES:
            raise TooManyReferences("bytes", count=MAX_BODY_BYTES)


async def _stream(found: Bibliography) -> AsyncGenerator[BatchInput]:
    for item in found.inputs:
        yield item


def _too_late(item: BatchInput) -> ListRow:
    if isinstance(item, ListRow):
        return item
    place = item if isinstance(item, ListItem) else ListItem(item)
    return ListRow(place.text, None, Verdict.UNVERIFIED, message=errors.UpstreamTimeout().message).place(place)
