"""The description of all paths."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from app.features.admin.gate import AdminGate
from app.features.feature import Context, Feature, Opened
from app.features.openapi.http import add_openapi
from app.web.operations import Face


def open_openapi(context: Context) -> Opened:
    """`/openapi.json` and `/docs`."""

    def add(app: FastAPI, face: Face) -> None:
        gates = [gate for gate in (context.find(AdminGate),) if gate is not None and not gate.has_listener]
        routes = [route for gate in gates for route in gate.routes]
        add_openapi(app, face, routes, server_url=context.facts.public_url or "/")

    return Opened(routes=(add,))


FEATURE: Final = Feature("openapi", "/openapi.json and /docs", needs=("admin",), open=open_openapi)
