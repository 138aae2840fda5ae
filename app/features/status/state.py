"""`/state`: whether the service works, in plain words for readers, and the same as an Atom feed (RFC 4287)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse

from app.features.status.events import Event
from app.features.status.models import State
from app.features.status.summary import write_uptime
from app.web.date import write_moment
from app.web.freshness import CACHE_CONTROL, VARY_ACCEPT_AND_LANGUAGE
from app.web.header import Header
from app.web.languages import Catalogue, choose_language
from app.web.pages import Link, Pages
from app.web.responses import HTML, PAGE_POLICY

STATE_PATH: Final = "/state"
FEED_PATH: Final = "/state.atom"
_ATOM: Final[Header] = (b"content-type", b"application/atom+xml;charset=utf-8")
#: A browser or a feed reader uses an answer for a minute.
_FRESHNESS: Final[Header] = (CACHE_CONTROL, b"max-age=60")
_DOCUMENTED: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"application/atom+xml": {}}}}


@dataclass(frozen=True, slots=True)
class ReaderState:
    """What readers see: the state, the interruptions with their newest first, and when the service started."""

    state: State
    interruptions: tuple[tuple[int, int | None], ...]
    started: int


def find_interruptions(events: Iterable[Event], hosts: Sequence[str]) -> tuple[tuple[int, int | None], ...]:
    """The times in which none of the upstreams answered, newest first: the beginning, and the end if it is over."""
    outages = [event for event in events if event.kind == "outage" and event.detail in hosts]
    common: list[tuple[int, float]] = [(0, float("inf"))]
    for host in set(hosts):
        own = [
            (outage.at, float("inf") if outage.until is None else outage.until)
            for outage in outages
            if outage.detail == host
        ]
        pairs = ((max(a, c), min(b, d)) for a, b in common for c, d in own)
        common = [(begin, end) for begin, end in pairs if begin <= end]
    found = sorted(common, reverse=True) if hosts else []
    return tuple((begin, None if end == float("inf") else int(end)) for begin, end in found)


def add_state(app: FastAPI, read: Callable[[], ReaderState], pages: Pages, link: Link, url: str) -> None:
    """Add the page and the feed. `url` is this resolver's own, or its path."""

    async def page(request: Request) -> Response:
        language = choose_language(request.headers.get("accept-language"), pages.languages)
        body = pages.render("state", link, language, "status.state_title", **state_facts(read()))
        return _respond(body, HTML, *PAGE_POLICY)

    async def feed(request: Request) -> Response:
        texts = pages.texts(choose_language(request.headers.get("accept-language"), pages.languages))
        return _respond(write_feed(texts, read(), url).encode(), _ATOM)

    for path, answer, summary in (
        (STATE_PATH, page, "Does the resolver work? In plain words"),
        (FEED_PATH, feed, "The interruptions of the resolver, as an Atom feed"),
    ):
        app.add_api_route(
            path,
            answer,
            methods=["GET"],
            tags=["operation"],
            summary=summary,
            response_class=HTMLResponse if answer is page else Response,
            response_description="The page." if answer is page else "The feed.",
            operation_id=summary.partition(" ")[0].lower() + path.replace("/", "_").replace(".", "_"),
            responses={} if answer is page else _DOCUMENTED,
        )
        app.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)


def state_facts(found: ReaderState) -> dict[str, Any]:
    """What the template uses."""
    return {"found": found, "interruption": write_interruption, "sentence": write_reader_state}


def write_reader_state(texts: Catalogue, found: ReaderState) -> str:
    """Whether it works, in the language of the texts."""
    begin = next((begin for begin, end in found.interruptions if end is None), None)
    return str(texts(f"status.state_{found.state}", time="–" if begin is None else write_moment(texts, begin)))


def write_interruption(texts: Catalogue, begin: int, end: int | None) -> str:
    """An interruption in the language of the texts."""
    if end is None:
        return str(texts("status.interruption_now", begin=write_moment(texts, begin)))
    duration = write_uptime(end - begin)
    return str(texts("status.interruption", begin=write_moment(texts, begin), duration=duration))


def write_feed(texts: Catalogue, found: ReaderState, url: str) -> str:
    """The feed: an entry for each interruption, which is updated at its end."""
    entries = [
        f"<entry><title>{write_interruption(texts, begin, end)}</title><id>{_identify(f'{url}/state#{begin}')}</id>"
        f"<updated>{_write_time(end or begin)}</updated>"
        f'<link href="{url}{STATE_PATH}"/><summary>{write_interruption(texts, begin, end)}</summary></entry>'
        for begin, end in found.interruptions
    ]
    newest = max((end or begin for begin, end in found.interruptions), default=found.started)
    title = str(texts("status.state_title"))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        f'<feed xmlns="http://www.w3.org/2005/Atom" xml:lang="{texts.language}">'
        f"<title>{title}</title><id>{_identify(f'{url}/state')}</id><updated>{_write_time(newest)}</updated>"
        f"<author><name>doi-proxy</name></author>"
        f'<link rel="self" href="{url}{FEED_PATH}"/><link href="{url}{STATE_PATH}"/>{"".join(entries)}</feed>\n'
    )


def _identify(url: str) -> str:
    """An identifier that stays: an atom:id is an IRI (RFC 4287, section 4.2.6)."""
    return f"urn:uuid:{uuid5(NAMESPACE_URL, url)}"


def _write_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _respond(body: bytes, *headers: Header) -> Response:
    fields = {name.decode(): value.decode() for name, value in (*headers, _FRESHNESS, VARY_ACCEPT_AND_LANGUAGE)}
    return Response(body, 200, headers=fields)
