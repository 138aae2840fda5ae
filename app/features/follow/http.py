"""`/admin/changes`: what the store wrote, in pages, for its replicas."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import FastAPI, Query, Request, Response

from app.features.fastapi_errors import respond
from app.features.follow.change_feed import ChangeFeed
from app.features.follow.feature import CHANGES_PATH
from app.features.operators import audit
from app.web.media_types import NDJSON, PROBLEM
from app.web.problem import problem

#: Characters of a cursor, which has the key of a name.
_MAX_CURSOR: Final = 4_096


def add_changes(app: FastAPI, feed: ChangeFeed, base: str) -> None:
    """Add the route to the admin API. `base` is the path of this resolver."""

    @app.get(
        CHANGES_PATH.decode(),
        tags=["cache"],
        summary="Pull what the store wrote since a cursor, one page at a time",
        response_description="A delta: lines of JSON with a cursor and a checksum at the end, compressed by gzip.",
        response_class=Response,
        responses={
            200: {"content": {NDJSON: {"schema": {"type": "string"}}}},
            410: {"description": "The log does not go back to the cursor.", "content": {PROBLEM: {}}},
            429: {"description": "Other pages are under way; try again after Retry-After.", "content": {PROBLEM: {}}},
        },
    )
    async def read_changes(
        request: Request,
        cursor: Annotated[
            str | None, Query(max_length=_MAX_CURSOR, description="The cursor of the last page. None for everything.")
        ] = None,
    ) -> Response:
        page = await feed.read(cursor or "")
        if page is None:
            detail = "Other pages of changes are under way; try again in a moment."
            # RFC 6585, section 4: a limit may count the requests of all clients for a resource.
            return respond(problem(429, detail, ((b"retry-after", b"1"),), base=base))
        # One line for the first page of everything, and one for the end. There can be many thousands between them.
        if not cursor or not page.more:
            audit(request, "changes", {"cursor": cursor or ""}, f"{page.lines} changes")
        return Response(page.body, media_type=NDJSON, headers={"content-encoding": "gzip"})
