"""`/help/<DOI>`: what a reader can do if the page of a DOI does not work. `/help/` is a form for the DOI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_names.presentation import read_path, url_path
from doi_proxy.endpoints import language_of, no_file, own_page
from doi_proxy.errors import CouldNotVerify, PrefixDenied
from doi_proxy.features.feature import Core
from doi_proxy.features.sqlite.writer import EarlierTarget, read_earlier_targets
from doi_proxy.resolver.resolution import Conditions, Standing, find_standing
from doi_proxy.web.freshness import NO_STORE, failure_token
from doi_proxy.web.name_pages import note_stale
from doi_proxy.web.negotiation import wants_page, write_moment, write_timestamp
from doi_proxy.web.pages import PageLink, external
from doi_proxy.web.redirect import Face
from doi_proxy.web.request_path import client_of
from doi_proxy.web.shown_values import MAX_CHARACTERS_SHOWN, find_target, host_of_address, web_address
from handle_protocol.value import Record

HELP_PATH: Final = "/help/"
#: Seconds that a page waits for them.
_READ_SECONDS: Final = 1.0
#: The headers of the redirect to the page of a name.
_NOT_STORED: Final = {NO_STORE[0].decode(): NO_STORE[1].decode()}


class HelpPage:
    """Shows the page. For a browser, a name that the cache does not have is looked up within the budget."""

    def __init__(
        self, core: Core, store: Path | None, clock: Callable[[], float], admit: Callable[[str], None]
    ) -> None:
        """`store` is the file of a SQLite store. `admit` counts a request of the client at an address."""
        self._core = core
        self._admit = admit
        self._store = store
        self._clock = clock
        #: The reads of earlier targets, with their client.
        self._reads: dict[asyncio.Task[tuple[EarlierTarget, ...]], str] = {}
        self._turn = asyncio.Lock()

    def add_to(self, app: FastAPI, face: Face) -> None:
        """Answer the path in an application, and link it from each record."""
        face.pages.links.append(PageLink("record", HELP_PATH, "help.link"))

        @app.api_route(HELP_PATH + "{name:path}", methods=["GET", "HEAD"], include_in_schema=False)
        async def show_help(request: Request) -> Response:
            typed = request.scope["raw_path"].removeprefix(HELP_PATH.encode())
            if not typed:
                return self._show_form(request, face)
            try:
                return await self._show(request, read_path(typed), face)
            except InvalidName:
                return no_file(face, request)

    def _show_form(self, request: Request, face: Face) -> Response:
        """The form, or the way to the page of the name that was typed in it."""
        typed = request.query_params.get("doi", "").strip()
        name = _read_typed(typed)
        if name is not None:
            return RedirectResponse(f"{face.link.base}{HELP_PATH}{url_path(name)}", 303, _NOT_STORED)
        is_wrong = bool(typed)
        language = language_of(request, face.pages)
        facts: dict[str, Any] = {"typed": typed[:MAX_CHARACTERS_SHOWN], "is_wrong": is_wrong}
        body = face.pages.render("help_form", face.link, language, "help.form_title", **facts)
        return own_page(body, NO_STORE, 400 if is_wrong else 200)

    async def _show(self, request: Request, name: HandleName, face: Face) -> Response:
        pages, language = face.pages, language_of(request, face.pages)
        address = request.client.host if request.client else ""
        client = client_of(address)
        # A crawler that follows the links of pages must not spend the budget.
        conditions = Conditions(client=client, only_cached=not wants_page(request.headers.get("accept")))
        try:
            self._admit(address)
            found = await self._core.resolver.resolve(name, conditions)
            record = found.record
        except PrefixDenied:
            return _redirect(face, name)
        except CouldNotVerify as failure:
            return self._show_unknown(face, language, name, failure)
        if find_standing(found) in (Standing.WITHDRAWN, Standing.NOT_REGISTERED) or not record.values:
            # The page of the name says so, and what to do then.
            return _redirect(face, name)
        target = find_target(record.values)
        if target is None:
            body = pages.render("help", face.link, language, "help.title", name, target=None, failure=None)
            return own_page(body, NO_STORE)
        earlier = await self._read_earlier(name, target, client)
        agency = self._core.prefixes.recall_contact(name)
        texts, helpers = pages.texts(language), pages.helpers(agency)
        facts: dict[str, Any] = {
            "target": external(target, target),
            "failure": None,
            "stale": note_stale(pages, language, found, self._clock()),
            "is_local": find_standing(found) is Standing.SET_HERE,
            "host": host_of_address(target),
            "agency": agency.agency,
            "changed": write_timestamp(texts, _changed_at(record)),
            "earlier": [(previous.target, write_moment(texts, previous.seen)) for previous in earlier],
            "ways": pages.list_ways(
                language, name, "dead", helpers, target, *(previous.target for previous in earlier)
            ),
        }
        return own_page(pages.render("help", face.link, language, "help.title", name, **facts), NO_STORE)

    def _show_unknown(self, face: Face, language: str, name: HandleName, failure: CouldNotVerify) -> Response:
        """The page of a name of which nothing is known."""
        ways = face.pages.list_ways(language, name, "unverified")
        facts: dict[str, Any] = {
            "target": None,
            "failure": face.pages.failure_reason(language, failure_token(failure)),
            "ways": ways,
        }
        return own_page(face.pages.render("help", face.link, language, "help.title", name, **facts), NO_STORE)

    async def _read_earlier(self, name: HandleName, target: str, client: str) -> list[EarlierTarget]:
        """The earlier targets that a browser can open, without the present one. Empty if the file is slow.

        A read that takes longer goes on, and keeps its place: its thread cannot be stopped.
        """
        own = sum(reader == client for reader in self._reads.values())
        # Reads of earlier targets that run or wait, and those of one client.
        if self._store is None or len(self._reads) >= 16 or own >= 4:
            return []
        task = asyncio.create_task(self._read_in_turn(self._store, name.key))
        self._reads[task] = client
        task.add_done_callback(self._reads.pop)
        await asyncio.wait({task}, timeout=_READ_SECONDS)
        found = task.result() if task.done() else ()
        return [
            previous for previous in found if web_address(previous.target) is not None and previous.target != target
        ]

    async def _read_in_turn(self, store: Path, key: str) -> tuple[EarlierTarget, ...]:
        """Read when no other read runs. DNS and files need the threads too."""
        async with self._turn:
            return await asyncio.to_thread(read_earlier_targets, store, key)


def _read_typed(text: str) -> HandleName | None:
    """The name in the field of the form. None if it has none."""
    try:
        name = read_path(quote(text, safe="/:").encode())
    except InvalidName:
        return None
    return name if name.suffix or name.is_short_doi else None


def _redirect(face: Face, name: HandleName) -> Response:
    """To the page of the name itself."""
    return RedirectResponse(f"{face.link.base}/{url_path(name)}", 302, _NOT_STORED)


def _changed_at(record: Record) -> str | None:
    """The timestamp of the URL value: when it was changed last (RFC 3651, section 3.1)."""
    return next((value.timestamp for value in record.values if value.has_type("URL")), None)
