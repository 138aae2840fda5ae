"""Which names are in a text, decided from its form alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from doi_proxy.features.feature import Feature, Opened

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.web.redirect import Face

PARSE_PATH: Final = "/api/parse"
EXTRACT_PATH: Final = "/api/extract"


class Texts(Feature):
    """The endpoints /api/parse and /api/extract."""

    name = "texts"
    summary = "what a text is, and which names are in a text or a list"

    def add_routes(self, app: FastAPI, face: Face, opened: Opened) -> None:
        """Add the endpoints."""
        from doi_proxy.features.texts.http import add_extract, add_parse

        face.own_api.update({PARSE_PATH.encode(): "parse", EXTRACT_PATH.encode(): "extract"})
        add_parse(app, self.context.public_url, opened.core.text_turns, opened.charge)
        add_extract(app, opened.core.text_turns, opened.charge)
