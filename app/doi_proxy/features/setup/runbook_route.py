"""Answers `/runbook/ALERT`: where the links of the alerts lead."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse

from doi_proxy.endpoints.own_pages import no_file, text_headers
from doi_proxy.features.setup.runbook import read_entries
from doi_proxy.web.freshness import STATIC_FILE
from doi_proxy.web.operations import Face


def add_runbook(app: FastAPI, face: Face) -> None:
    """Answer `/runbook/ALERT` with its entry."""

    @app.api_route("/runbook/{entry}", methods=["GET", "HEAD"], include_in_schema=False)
    async def show_entry(entry: str, request: Request) -> Response:
        text = read_entries().get(entry.lower())
        if text is None:
            return no_file(face, request)
        return PlainTextResponse(text, headers=text_headers(STATIC_FILE))
