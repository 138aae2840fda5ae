"""The description of all paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from doi_proxy.features.feature import Feature, Opened

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.web.redirect import Face


class OpenAPI(Feature):
    """`/openapi.json` and `/docs`."""

    name = "openapi"
    summary = "/openapi.json and /docs"

    def add_routes(self, app: FastAPI, face: Face, opened: Opened) -> None:
        """Add the description of the routes that were added before."""
        from doi_proxy.features.openapi.document import add_openapi

        routes = [route for gate in opened.gates if not gate.has_listener for route in gate.app.routes]
        add_openapi(app, face, routes, server_url=self.context.public_url or "/")
