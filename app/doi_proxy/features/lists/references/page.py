"""`/references`: the form, and the page about what was sent. Nothing of it is stored or logged."""

from __future__ import annotations

import asyncio
import html
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from functools import partial
from math import ceil
from typing import Any, Final

from fastapi import FastAPI, Request, Response

from doi_proxy.endpoints.own_pages import language_of, text_headers
from doi_proxy.errors import FAILURES, DoiProxyError, Quota, TooManyRequests, UpstreamTimeout, as_failure
from doi_proxy.features.lists.answer import BATCHES, BatchService, OpenBatches, OpenList
from doi_proxy.features.lists.batch import BatchInput
from doi_proxy.features.lists.feature import TooManyBatches
from doi_proxy.features.lists.http import read_length
from doi_proxy.features.lists.name_lookup import BatchOptions
from doi_proxy.features.lists.references.bibliography import Bibliography, read_bibliography
from doi_proxy.features.lists.references.errors import TooManyReferences, describe_error
from doi_proxy.features.lists.references.form import read_form, read_typed_text
from doi_proxy.features.lists.references.result import Result, correct, describe
from doi_proxy.features.lists.verdict import ListRow, Verdict
from doi_proxy.list_formats.body import BodyBuffer
from doi_proxy.list_formats.lines import ListItem
from doi_proxy.list_formats.streamed_answer import Output, StreamedAnswer
from doi_proxy.web.date import write_date
from doi_proxy.web.failure_headers import quota_headers
from doi_proxy.web.freshness import NO_STORE, VARY_LANGUAGE
from doi_proxy.web.header import Header
from doi_proxy.web.operations import Face
from doi_proxy.web.pages import choose_wait
from doi_proxy.web.responses import HTML, PAGE_POLICY

PATH: Final = "/references"
#: Limit of a form, in bytes. A document with pictures is larger; its text can be pasted.
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
#: Seconds in which a form that has arrived is read, and those after which its page waits for no more answers. Browsers
#: and front proxies wait for 30 to 60, and nginx then sends no client's requests to this process for some seconds.
READ_TIMEOUT: Final = 10.0
CHECK_TIMEOUT: Final = 20.0
#: The Retry-After of a form that was not read in time, in seconds.
_RETRY_SECONDS: Final = 10.0
#: Refused forms whose text is read for the reader at the same time, and the seconds that this takes at most.
_MAX_RETURNED: Final = 16
_RETURN_SECONDS: Final = 5.0
#: Characters that are escaped in one turn of the event loop.
_PIECE: Final = 65_536
#: References that are described in one turn of the event loop.
_GROUP: Final = 50


class ReferencesPage:
    """Shows the form and the results."""

    def __init__(
        self, service: BatchService, face: Face, client_at: Callable[[str], str], admit: Callable[[str], None]
    ) -> None:
        """`client_at` returns the client at an address. `admit` counts its request. See Admission.admit."""
        self._service = service
        self._face = face
        self._client_at = client_at
        self._admit = admit
        self._returned = OpenBatches(_MAX_RETURNED, lambda limit: None)

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

    def refuse(self, request: Request) -> DoiProxyError | None:
        """Count a request. Returns why its client may not have an answer."""
        try:
            self._admit(_address(request))
        except DoiProxyError as error:
            return error
        return None

    def render(self, language: str, result: Result | None = None, error: DoiProxyError | None = None) -> bytes:
        """The page without the text of its form."""
        wait = choose_wait(max(1, ceil(error.retry_after))) if isinstance(error, TooManyRequests) else None
        facts: dict[str, Any] = {
            "result": result,
            "problem": describe_error(error),
            "wait": wait,
            "write_date": write_date,
        }
        return self._face.pages.render("references", self._face.link, language, "references.title", **facts)

    async def read_back(self, request: Request, body: BodyBuffer, received: bytearray, error: DoiProxyError) -> str:
        """The text of a form that was refused. A refusal of the client comes before its form is read."""
        if isinstance(error, TooManyRequests):
            client = self._client_at(_address(request))
            with suppress(*FAILURES, TimeoutError), self._returned.enter(client, OpenList(body)):
                async with asyncio.timeout(_RETURN_SECONDS):
                    await _collect(body, received)
        await asyncio.sleep(0)  # to read 4 MB takes 15 ms, also before the refusal
        return read_typed_text(request.headers.get("content-type", ""), received)

    async def check(self, request: Request, body: BodyBuffer, received: bytearray) -> tuple[Result, str]:
        """The result for a form, and its text. The form is added to `received`. Raises DoiProxyError."""
        client = self._client_at(_address(request))
        place = OpenList(body, length=read_length(request.headers))
        with self._service.open.enter(client, place):
            await _collect(body, received)
            began = asyncio.get_running_loop().time()
            sent = read_form(request.headers.get("content-type", ""), received)
            await asyncio.sleep(0)
            matches = self._service.batches.compare is not None
            hold_turn = partial(self._service.text_turns.hold, client)
            try:
                async with asyncio.timeout_at(began + READ_TIMEOUT):
                    found = await read_bibliography(sent, hold_turn, keeps_entries=matches)
            except TimeoutError:
                raise _too_busy() from None
            options = BatchOptions(
                client, literal=found.is_running_text, suggests=True, checks=True, matches=matches, agency="none"
            )
            rows = await self._look_up(found, options, place, began + CHECK_TIMEOUT)
            described = []
            for number, (row, at) in enumerate(zip(rows, found.places, strict=True)):
                described.append(describe(row, at))
                if number % _GROUP == _GROUP - 1:
                    await asyncio.sleep(0)
            corrected = correct(found.text, described, found.places)
            await asyncio.sleep(0)
        return Result(tuple(described), corrected, found.file_name), found.text

    async def _look_up(self, found: Bibliography, options: BatchOptions, place: OpenList, due: float) -> list[ListRow]:
        """The row of each reference. What is not answered when it is due is unverified."""
        rows: list[ListRow] = []
        try:
            groups = self._service.batches.groups(_stream(found), options)
            async with asyncio.timeout_at(due), aclosing(groups):
                async for group in place.limit(groups):
                    rows += group
        except TimeoutError:
            rows += [_too_late(item) for item in found.inputs[len(rows) :]]
        return rows


class _CheckedPage(StreamedAnswer):
    """The answer to a form. The work ends when the reader leaves."""

    def __init__(self, page: ReferencesPage, request: Request, language: str, refusal: DoiProxyError | None) -> None:
        super().__init__()
        self.read_ahead_bytes = MAX_BODY_BYTES if refusal is None else _PIECE
        self._page = page
        self._request = request
        self._language = language
        self._refusal = refusal

    async def _answer(self, body: BodyBuffer, output: Output) -> None:
        result, text, error, received = None, "", self._refusal, bytearray()
        if error is None:
            try:
                result, text = await self._page.check(self._request, body, received)
            except FAILURES as raised:
                error = as_failure(raised)
        if error is not None:
            text = await self._page.read_back(self._request, body, received, error)
        pieces = await _fill(self._page.render(self._language, result, error), text)
        status = 200 if error is None else error.status
        headers = [*_headers_of(error), (b"content-length", b"%d" % sum(map(len, pieces)))]
        await output.send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await output.send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await output.send({"type": "http.response.body", "body": b""})


_HEADERS: Final = (HTML, *PAGE_POLICY, VARY_LANGUAGE, NO_STORE)


def _headers_of(error: DoiProxyError | None) -> tuple[Header, ...]:
    more = quota_headers(error.quota, error.retry_after) if isinstance(error, TooManyRequests) else ()
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


def _too_busy() -> TooManyBatches:
    quota = Quota(BATCHES, 1, int(_RETRY_SECONDS))
    return TooManyBatches(
        "This resolver reads many texts now; try again later.", quota=quota, retry_after=_RETRY_SECONDS
    )


async def _stream(found: Bibliography) -> AsyncGenerator[BatchInput]:
    for item in found.inputs:
        yield item


def _too_late(item: BatchInput) -> ListRow:
    if isinstance(item, ListRow):
        return item
    place = item if isinstance(item, ListItem) else ListItem(item)
    return ListRow(place.text, None, Verdict.UNVERIFIED, message=UpstreamTimeout().message).place(place)
