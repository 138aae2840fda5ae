"""`/references`: the form, and the page about what was sent. Nothing of it is stored or logged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from fastapi import FastAPI, Request, Response

from app.errors import DoiProxyError, RequestTooLarge
from app.features.lists.answer import BatchService, OpenList, Output, StreamedAnswer
from app.features.lists.batch import BatchInput
from app.features.lists.body import BodyBuffer
from app.features.lists.lines import ListItem
from app.features.lists.name_lookup import BatchOptions
from app.features.lists.verdict import ListRow, Verdict
from app.features.own_pages import language_of
from app.features.references.bibliography import Bibliography, read_bibliography
from app.features.references.form import read_form
from app.features.references.result import Result, correct, describe
from app.web.freshness import NO_STORE, VARY_LANGUAGE
from app.web.operations import Face
from app.web.responses import HTML, PAGE_POLICY

PATH: Final = "/references"
#: Limit of a form, in bytes. A document with pictures is larger; its text can be pasted.
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
#: Seconds that a page waits for answers. Browsers and front proxies wait for 30 to 60.
PATIENCE: Final = 20.0
_TOO_LATE: Final = "No answer arrived in time; check again."
#: References that are described in one turn of the event loop.
_GROUP: Final = 50


class ReferencesPage:
    """Shows the form and the results."""

    def __init__(self, service: BatchService, face: Face, client_at: Callable[[str], str]) -> None:
        """`client_at` returns the client at an address."""
        self._service = service
        self._face = face
        self._client_at = client_at

    def add_to(self, app: FastAPI) -> None:
        """Answer the path in an application."""

        @app.api_route(PATH, methods=["GET", "HEAD"], include_in_schema=False)
        async def show_form(request: Request) -> Response:
            body = self.render(language_of(request, self._face.pages))
            return Response(body, headers={name.decode(): value.decode() for name, value in _HEADERS})

        @app.api_route(PATH, methods=["POST"], include_in_schema=False)
        async def check_references(request: Request) -> Response:
            return _CheckedPage(self, request, language_of(request, self._face.pages))

    def render(self, language: str, result: Result | None = None, problem: str = "", text: str = "") -> bytes:
        """The page."""
        pages, link = self._face.pages, self._face.link
        return pages.render("references", link, language, "references.title", result=result, problem=problem, text=text)

    async def check(self, request: Request, body: BodyBuffer) -> tuple[Result, str]:
        """The result for a form, and its text. Raises DoiProxyError."""
        client = self._client_at(request.client.host if request.client else "")
        place = OpenList(body)
        with self._service.open.enter(client, place):
            sent = read_form(request.headers.get("content-type", ""), await _collect(body))
            found = await read_bibliography(sent, self._service.text_turn)
            options = BatchOptions(client, literal=found.is_running_text, suggests=True, checks=True, agency="none")
            rows = await self._look_up(found, options, place)
            described = []
            for number, (row, at) in enumerate(zip(rows, found.places, strict=True)):
                described.append(describe(row, at))
                if number % _GROUP == _GROUP - 1:
                    await asyncio.sleep(0)
            corrected = correct(found.text, described, found.places)
        return Result(tuple(described), corrected, found.file_name), found.text

    async def _look_up(self, found: Bibliography, options: BatchOptions, place: OpenList) -> list[ListRow]:
        """The row of each reference. What is not answered in time is unverified."""
        rows: list[ListRow] = []
        try:
            groups = self._service.batches.groups(_stream(found), options)
            async with asyncio.timeout(PATIENCE), aclosing(groups):
                async for group in place.limit(groups):
                    rows += group
        except TimeoutError:
            rows += [_too_late(one) for one in found.inputs[len(rows) :]]
        return rows


class _CheckedPage(StreamedAnswer):
    """The answer to a form. The work ends when the reader leaves."""

    def __init__(self, page: ReferencesPage, request: Request, language: str) -> None:
        super().__init__(MAX_BODY_BYTES)
        self._page = page
        self._request = request
        self._language = language

    async def _answer(self, body: BodyBuffer, output: Output) -> None:
        language, status = self._language, 200
        try:
            result, text = await self._page.check(self._request, body)
            page = self._page.render(language, result, text=text)
        except DoiProxyError as error:
            page, status = self._page.render(language, problem=error.message), error.status
        headers = [*_HEADERS, (b"content-length", b"%d" % len(page))]
        await output.send({"type": "http.response.start", "status": status, "headers": headers})
        await output.send({"type": "http.response.body", "body": page})


_HEADERS: Final = (HTML, *PAGE_POLICY, VARY_LANGUAGE, NO_STORE)


async def _collect(body: BodyBuffer) -> bytes:
    pieces, size = [], 0
    async for piece in body.pieces():
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise RequestTooLarge(f"The form has more than {MAX_BODY_BYTES} bytes; paste the text of the references.")
        pieces.append(piece)
    return b"".join(pieces)


async def _stream(found: Bibliography) -> AsyncGenerator[BatchInput]:
    for one in found.inputs:
        yield one


def _too_late(item: BatchInput) -> ListRow:
    if isinstance(item, ListRow):
        return item
    place = item if isinstance(item, ListItem) else ListItem(item)
    return ListRow(place.text, None, Verdict.UNVERIFIED, message=_TOO_LATE).place(place)
