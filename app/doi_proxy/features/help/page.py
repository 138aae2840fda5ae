"""`/help/<DOI>`: what to do if the link of a DOI works, and its page does not. It shows what this resolver knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from doi_names.errors import InvalidName
from doi_names.name import HandleName
from doi_names.presentation import read_path
from doi_names.uri import url_path
from doi_proxy.cache.entry import Entry
from doi_proxy.endpoints.own_pages import language_of, no_file, own_page
from doi_proxy.errors import PrefixDenied
from doi_proxy.features.feature import Core
from doi_proxy.features.sqlite.earlier_targets import EarlierTarget, read_earlier_targets
from doi_proxy.resolver.resolution import read_record
from doi_proxy.web.client_network import client_of
from doi_proxy.web.date import write_moment, write_timestamp
from doi_proxy.web.freshness import NO_STORE
from doi_proxy.web.operations import Face
from doi_proxy.web.pages import PageLink
from doi_proxy.web.shown_values import find_target, web_address
from handle_protocol.answer import ResponseCode
from handle_protocol.record import Record

HELP_PATH: Final = "/help/"
#: Reads of earlier targets that run or wait, and those of one client.
_MAX_READS: Final = 16
_MAX_OWN_READS: Final = 4
#: Seconds that a page waits for them.
_READ_SECONDS: Final = 1.0
#: The headers of the redirect to the page of a withdrawn name.
_NOT_STORED: Final = {NO_STORE[0].decode(): NO_STORE[1].decode()}


@dataclass(frozen=True, slots=True)
class KnownRecord:
    """What this resolver knows of a name. `is_gone` if a local record says that it was withdrawn."""

    record: Record
    is_gone: bool


class HelpPage:
    """Shows the page. No upstream is queried."""

    def __init__(self, core: Core, store: Path | None, clock: Callable[[], float]) -> None:
        """`store` is the file of a SQLite store."""
        self._core = core
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
            try:
                name = read_path(request.scope["raw_path"].removeprefix(HELP_PATH.encode()))
            except InvalidName:
                return no_file(face, request)
            return await self._show(request, name, face)

    async def _show(self, request: Request, name: HandleName, face: Face) -> Response:
        pages, language = face.pages, language_of(request, face.pages)
        known = await self._find(name)
        if known is not None and known.is_gone:
            # Its record says what can be said.
            return RedirectResponse(f"{face.link.base}/{url_path(name)}", 302, _NOT_STORED)
        target = None if known is None else find_target(known.record.values)
        if known is None or target is None:
            body = pages.render("help", face.link, language, "help.title", name, known=known is not None, target=None)
            return own_page(body, NO_STORE, 404)
        client = client_of(request.client.host if request.client else "")
        earlier = await self._read_earlier(name, target, client)
        agency = self._core.prefixes.recall_contact(name)
        texts, helpers = pages.texts(language), pages.helpers(agency)
        facts: dict[str, Any] = {
            "known": True,
            "target": target,
            "host": _host_of(target),
            "agency": agency.agency,
            "registered": write_timestamp(texts, _registered_at(known.record)),
            "earlier": [(previous.target, write_moment(texts, previous.seen)) for previous in earlier],
            "ways": pages.list_ways(
                language, name, "dead", helpers, target, *(previous.target for previous in earlier)
            ),
        }
        return own_page(pages.render("help", face.link, language, "help.title", name, **facts), NO_STORE)

    async def _find(self, name: HandleName) -> KnownRecord | None:
        local = self._core.resolver.local_records
        try:
            found = None if local is None else local.resolve(name, self._clock())
        except PrefixDenied:
            return None
        if found is not None:
            return KnownRecord(found.record, found.tombstone is not None)
        entry: Entry | None = await self._core.cache.get(name.key)
        if entry is None or entry.answer.code is not ResponseCode.SUCCESS:
            return None
        record = read_record(entry.answer.values)
        # A large record takes a turn of the event loop of its own.
        await asyncio.sleep(0)
        return KnownRecord(record, is_gone=False)

    async def _read_earlier(self, name: HandleName, target: str, client: str) -> list[EarlierTarget]:
        """The earlier targets that a browser can open, without the present one. Empty if the file is slow.

        A read that takes longer goes on, and keeps its place: its thread cannot be stopped.
        """
        own = sum(reader == client for reader in self._reads.values())
        if self._store is None or len(self._reads) >= _MAX_READS or own >= _MAX_OWN_READS:
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


def _host_of(target: str) -> str:
    """The host of a target, "" if it has none that can be read, such as "http://[x/"."""
    try:
        return urlsplit(target).hostname or ""
    except ValueError:
        return ""


def _registered_at(record: Record) -> str | None:
    """The timestamp of the URL value."""
    return next((value.timestamp for value in record.values if value.has_type("URL")), None)
