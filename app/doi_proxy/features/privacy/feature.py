"""What is recorded of readers: the access log, and `/privacy`, the page that says it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from multiprocessing.util import Finalize
from random import Random
from typing import Any, Final

import fastapi
from fastapi import FastAPI, Response

from doi_proxy.endpoints.own_pages import language_of, own_page
from doi_proxy.features.feature import Context, Feature, Opened, Service
from doi_proxy.features.privacy.access_log import AccessLog
from doi_proxy.features.privacy.facts import PrivacyFacts, read_privacy
from doi_proxy.features.privacy.line import LineFormat, LogLine
from doi_proxy.features.privacy.line_writer import LineWriter
from doi_proxy.features.privacy.metrics import LOST_LINES
from doi_proxy.features.privacy.settings import AccessLogSettings
from doi_proxy.web.freshness import OWN_PAGE
from doi_proxy.web.operations import Face
from doi_proxy.web.pages import PageLink

_STANDARD_OUTPUT: Final = 1
#: Any number: the last lines need nothing that ends before them.
_EXIT_PRIORITY: Final = 0


class LineService(Service):
    """Writes the last lines at the end, and counts those that were lost."""

    def __init__(self, writer: LineWriter, count_lost: Callable[..., None]) -> None:
        self._writer = writer
        self._count_lost = count_lost
        self._counted = 0
        self._at_exit: Finalize | None = None

    async def start(self) -> None:
        """Write the last lines also if the process ends by a fault."""
        # A worker is a fork. It ends without the functions of atexit.
        self._at_exit = Finalize(self, self._writer.close, exitpriority=_EXIT_PRIORITY)

    def tick(self) -> None:
        """Count the lines that were lost."""
        lost = self._writer.lost
        if lost > self._counted:
            self._count_lost(lost - self._counted)
            self._counted = lost

    async def stop(self) -> None:
        """Write the last lines."""
        await asyncio.to_thread(self._writer.close)
        if self._at_exit is not None:
            self._at_exit.cancel()


def new_access_log(privacy_level: int, clock: Callable[[], float], write: Callable[[LogLine], object]) -> AccessLog:
    """A log whose request IDs are random."""
    random_bits = Random().getrandbits  # noqa: S311 - a request ID is not a secret
    return AccessLog(
        privacy_level=privacy_level,
        clock=clock,
        timer=time.perf_counter,
        new_id=lambda: random_bits(64).to_bytes(8).hex(),
        write=write,
    )


def open_privacy(context: Context) -> Opened:
    """The stage that logs each answer, the page, and its link in the footer of every page."""
    supplied = context.find(AccessLog)
    form, level = context.settings.group(AccessLogSettings).access_log, context.facts.privacy_level
    routes = (_add_page(context),)
    if supplied is not None:
        return Opened(stages=(supplied,), routes=routes)
    if form == "off":
        return Opened(routes=routes)
    writer = LineWriter(_STANDARD_OUTPUT, LineFormat(form, level))
    log = new_access_log(level, context.clock, writer.write)
    return Opened(stages=(log,), services=(LineService(writer, context.meter.counter(LOST_LINES)),), routes=routes)


def _add_page(context: Context) -> Callable[[FastAPI, Face], None]:
    def add(app: FastAPI, face: Face) -> None:
        face.pages.links.append(PageLink("footer", "/privacy", "site.privacy"))

        @app.api_route("/privacy", methods=["GET", "HEAD"], include_in_schema=False)
        async def privacy(request: fastapi.Request) -> Response:
            # The upstreams can change with the local records.
            facts = read_privacy(context.settings, context.core.upstream.guards)
            links = (link.cookie_key for link in face.pages.links if link.cookie_key and link.is_shown())
            cookies = next(links, "privacy.cookies_none")
            language = language_of(request, face.pages)
            body = face.pages.render("privacy", face.link, language, "privacy.title", privacy=facts, cookies=cookies)
            return own_page(body, OWN_PAGE)

    return add


def _sample_facts() -> dict[str, dict[str, Any]]:
    """The facts of a sample of the page, by its template."""
    facts = PrivacyFacts(2, "file", 30, ("doi.org",), 24, 64, has_countries=False)
    return {"privacy": {"privacy": facts, "cookies": "privacy.cookies_none"}}


FEATURE: Final = Feature(
    "privacy",
    "the access log, with as much as the privacy level allows, and /privacy, the page about it",
    open=open_privacy,
    samples=_sample_facts,
)
