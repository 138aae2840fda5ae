"""The description of all paths."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI

from doi_proxy.features.feature import Context, Feature, Opened
from doi_proxy.features.openapi.http import add_openapi
from doi_proxy.web.operations import Face


def open_openapi(context: Context) -> Opened:
    """`/openapi.json` and `/docs`."""

    def add(app: FastAPI, face: Face) -> None:
        routes = [route for gate in context.gates if not gate.has_listener for route in gate.app.routes]
        add_openapi(app, face, routes, server_url=context.facts.public_url or "/")

    return Opened(routes=(add,))


def _sample_facts() -> dict[str, dict[str, Any]]:
    """The facts of a sample of the page, by its template."""
    return {"docs": {"schema": {"info": {}, "paths": {}}, "problems": {"not-a-doi": "Not a DOI"}}}


FEATURE: Final = Feature("openapi", "/openapi.json and /docs", open=open_openapi, samples=_sample_facts)
