"""The route of `/status`: JSON for programs, a page for browsers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Query, Request, Response

from doi_proxy.features.status.models import STATUS_PATH, Status
from doi_proxy.features.status.numbers import write_count, write_number, write_share
from doi_proxy.features.status.plot import DAY, HOUR, plot
from doi_proxy.features.status.summary import write_event, write_problem, write_sentence, write_uptime
from doi_proxy.web import media_types
from doi_proxy.web.date import write_moment
from doi_proxy.web.freshness import NO_STORE, VARY_ACCEPT_AND_LANGUAGE
from doi_proxy.web.header import Header
from doi_proxy.web.languages import choose_language
from doi_proxy.web.pages import Link, Pages
from doi_proxy.web.problem import PROBLEM, problem
from doi_proxy.web.responses import HTML, JSON, PAGE_POLICY

_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {media_types.HTML: {}},
        "headers": {"Refresh": {"description": "The value of `refresh`.", "schema": {"type": "string"}}},
    },
    401: {
        "description": "The token of the request is wrong.",
        "content": {media_types.PROBLEM: {}},
    },
    403: {
        "description": "The setting `status_networks` does not have this client, and the request has no token.",
        "content": {media_types.PROBLEM: {}, media_types.HTML: {}},
    },
    429: {"description": "The client sent too many wrong tokens.", "content": {media_types.PROBLEM: {}}},
}
#: Seconds between two loads of the page.
_REFRESH = Query(ge=5, le=3600, description="Seconds after which a browser loads the page again.")
_FORMAT = Query(description="`json` or `html`; without it, `Accept` decides.")


def add_status(
    app: FastAPI,
    read: Callable[[Request], Awaitable[Status | None]],
    pages: Pages,
    link: Link,
    *,
    is_described: bool = True,
) -> None:
    """Add the route to an application. `read` returns None for a request that may not see the status."""

    @app.get(
        STATUS_PATH,
        tags=["Operate"],
        summary="What is the service doing?",
        response_model=Status,
        response_description="The state of this process, and what it counted.",
        operation_id="status",
        responses=_RESPONSES,
        include_in_schema=is_described,
    )
    async def status(
        request: Request,
        format: Annotated[Literal["json", "html"] | None, _FORMAT] = None,  # noqa: A002
        refresh: Annotated[int | None, _REFRESH] = None,
    ) -> Response:
        wants_page = format == "html" or (format is None and media_types.HTML in request.headers.get("accept", ""))
        language = choose_language(request.headers.get("accept-language"), pages.languages)
        found = await read(request)
        if found is None:
            return _refuse(pages, link, language) if wants_page else _problem(link)
        # A turn for the numbers, and one for what shows them.
        await asyncio.sleep(0)
        if not wants_page:
            return _respond(found.model_dump_json().encode(), JSON)
        # What is around the main part of a page is the same for every request, so this is not a <meta>.
        again = () if refresh is None else ((b"refresh", b"%d" % refresh),)
        return _respond(
            pages.render("status", link, language, "status.title", **page_facts(found)),
            HTML,
            *PAGE_POLICY,
            *again,
        )

    app.add_api_route(STATUS_PATH, status, methods=["HEAD"], include_in_schema=False)


def page_facts(status: Status) -> dict[str, Any]:
    """What the template uses."""
    written = {
        "sentence": write_sentence,
        "problem": write_problem,
        "start": write_moment,
        "uptime": write_uptime,
        "event": write_event,
    }
    return {
        "status": status,
        "plots": {
            "hour": plot(status.minutes, status.started + status.uptime, HOUR),
            "day": plot(status.history, status.started + status.uptime, DAY),
        },
        "number": write_number,
        "share": write_share,
        "counted": write_count,
        **written,
    }


def _refuse(pages: Pages, link: Link, language: str) -> Response:
    body = pages.render(
        "error", link, language, "title.error_denied", text="status.refused", reason="", typed="", wait=None
    )
    return _respond(body, HTML, *PAGE_POLICY, status=403)


_REASON = (
    "The status is not shown to this network, or not under this host; add the network to status_networks, set"
    " public_url to the host, or send the token of the admin API."
)


def _problem(link: Link) -> Response:
    return _respond(problem(403, _REASON, base=link.base).body, PROBLEM, status=403)


def _respond(body: bytes, *headers: Header, status: int = 200) -> Response:
    fields = {name.decode(): value.decode() for name, value in (*headers, NO_STORE, VARY_ACCEPT_AND_LANGUAGE)}
    return Response(body, status, headers=fields)
