"""The route of `/status`: JSON for programs, a page for browsers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Query, Request, Response

from doi_proxy.features.status import summary
from doi_proxy.features.status.models import DAY, HOUR, STATUS_PATH, Health, Readiness, Status, plot
from doi_proxy.web import media_types
from doi_proxy.web.freshness import NO_STORE, VARY_ACCEPT_AND_LANGUAGE
from doi_proxy.web.languages import choose_language
from doi_proxy.web.negotiation import write_moment
from doi_proxy.web.pages import Link, Pages
from doi_proxy.web.problem import PROBLEM, problem
from doi_proxy.web.request_path import Header
from doi_proxy.web.responses import HTML, JSON, PAGE_POLICY


def add_health(app: FastAPI, readiness: Callable[[], Awaitable[Readiness]]) -> None:
    """Answer /healthz and /readyz."""

    @app.get("/healthz", tags=["Operate"], summary="Is the process alive?", response_description="It is.")
    async def healthz() -> Health:
        return Health(status="ok")

    @app.get(
        "/readyz",
        tags=["Operate"],
        summary="Can it answer?",
        response_description="It can, from its cache at least.",
        responses={503: {"model": Readiness, "description": "It cannot: send requests elsewhere."}},
    )
    async def readyz(response: Response) -> Readiness:
        state = await readiness()
        response.status_code = 200 if state.ready else 503
        return state

    for route in (healthz, readyz):
        app.add_api_route("/" + route.__name__, route, methods=["HEAD"], include_in_schema=False, response_model=None)


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
            if wants_page:
                body = pages.render(
                    "error", link, language, "title.error_denied", text="status.refused", reason="", typed="", wait=None
                )
                return _respond(body, HTML, *PAGE_POLICY, status=403)
            return _respond(problem(403, _REASON, base=link.base).body, PROBLEM, status=403)
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
        "sentence": summary.write_sentence,
        "problem": summary.write_problem,
        "start": write_moment,
        "uptime": summary.write_uptime,
        "event": summary.write_event,
    }
    return {
        "status": status,
        "plots": {
            "hour": plot(status.minutes, status.started + status.uptime, HOUR),
            "day": plot(status.history, status.started + status.uptime, DAY),
        },
        "number": summary.write_number,
        "numbers": summary.write_numbers,
        "share": summary.write_share,
        "counted": summary.write_count,
        **written,
    }


_REASON = (
    "The status is not shown to this network, or not under this host; add the network to status_networks, set"
    " public_url to the host, or send the token of the admin API."
)


def _respond(body: bytes, *headers: Header, status: int = 200) -> Response:
    fields = {name.decode(): value.decode() for name, value in (*headers, NO_STORE, VARY_ACCEPT_AND_LANGUAGE)}
    return Response(body, status, headers=fields)
