"""The route of `/status`: JSON for programs, a page for browsers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from math import ceil, floor, log10
from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Query, Request, Response

from doi_proxy.features.status import summary
from doi_proxy.features.status.models import STATUS_PATH, STEP, Health, HistoryPoint, Readiness, Status
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
        "plot": plot(status.history, status.started + status.uptime),
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


#: Columns of a plot, one for each five minutes of a day.
WIDTH: Final = 288
#: What became of the names of a column, from the bottom to the top.
BANDS: Final = ("cache", "upstream", "stale", "unverified")


@dataclass(frozen=True, slots=True)
class Row:
    """The names of the time from `start` on, in the order of BANDS, and the minutes in which an upstream was down."""

    start: int
    names: tuple[int, ...]
    down: int


@dataclass(frozen=True, slots=True)
class Plot:
    """The stacked areas by their band, the topmost first, to be painted in this order.

    `down` are the columns in which an upstream was down: place and width. `labels` are times with their place in per
    cent, and the side on which one at an edge must not stick out. `top` is the scale: names a second at the upper
    edge, 0.0 without any. `rows` are the numbers for a table.
    """

    paths: tuple[tuple[str, str], ...]
    down: tuple[tuple[int, int], ...]
    labels: tuple[tuple[str, str, str], ...]
    top: float
    rows: tuple[Row, ...]


def count_bands(point: HistoryPoint) -> tuple[int, ...]:
    """The names of a point, in the order of BANDS."""
    return point.hits, max(0, point.answers - point.hits - point.stale), point.stale, point.unverified


def plot(history: Sequence[HistoryPoint], now: float) -> Plot:
    """Draw the day before `now`, in seconds since the epoch. A missing point is a gap."""
    begin = int(now - now % STEP) + STEP - WIDTH * STEP
    columns = {}
    for point in history:
        seconds = min(STEP, now - point.start)
        # The share of a column after which the newest one has a rate.
        if point.start >= begin and seconds >= 0.2 * STEP:
            sums = accumulate(count_bands(point))
            columns[(point.start - begin) // STEP] = [count / seconds for count in sums]
    top = _round_up(max((sums[-1] for sums in columns.values()), default=0.0))
    down = [(point.start - begin) // STEP for point in history if point.down and point.start >= begin]
    return Plot(
        paths=tuple(_draw(columns, top)) if top else (),
        down=tuple((run[0], len(run)) for run in _runs(down)),
        labels=tuple(_label(begin)),
        top=top,
        rows=tuple(_sum_rows(history, begin)),
    )


def _round_up(rate: float) -> float:
    """The next round number."""
    if rate <= 0:
        return 0.0
    power = 10.0 ** floor(log10(rate))
    # The upper edges of the scale, at a power of ten.
    return float(f"{next(step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= rate * 0.999) * power:.6g}")


def _draw(columns: dict[int, list[float]], top: float) -> Iterator[tuple[str, str]]:
    for number in reversed(range(len(BANDS))):
        # An area that adds nothing would be hidden by the next one.
        if not any(sums[number] > (sums[number - 1] if number else 0.0) for sums in columns.values()):
            continue
        pieces = []
        for run in _runs(sorted(columns)):
            steps = "".join(f"V{100 * (1 - columns[column][number] / top):.4g}h1" for column in run)
            pieces.append(f"M{run[0]} 100{steps}V100z")
        yield BANDS[number], "".join(pieces)


def _runs(columns: Sequence[int]) -> list[list[int]]:
    """Numbers in ascending order as runs without gaps."""
    runs = list[list[int]]()
    for column in columns:
        if runs and runs[-1][-1] == column - 1:
            runs[-1].append(column)
        else:
            runs.append([column])
    return runs


def _label(begin: int) -> Iterator[tuple[str, str, str]]:
    between = 6 * 3_600
    for time in range(begin - begin % between + between, begin + WIDTH * STEP, between):
        place = 100 * (time - begin) / (WIDTH * STEP)
        # Half of the width of a label on a telephone, in per cent of the plot.
        side = "first" if place < 6 else "last" if place > 94 else ""
        yield datetime.fromtimestamp(time, UTC).strftime("%H:%M"), f"{place:.4g}%", side


def _sum_rows(history: Sequence[HistoryPoint], begin: int) -> Iterator[Row]:
    points = dict[int, list[HistoryPoint]]()
    for point in history:
        if point.start >= begin:
            points.setdefault(point.start - point.start % 3_600, []).append(point)
    for start, found in points.items():
        names = tuple(map(sum, zip(*map(count_bands, found), strict=True)))
        yield Row(start, names, ceil(sum(point.down for point in found) / 60))
