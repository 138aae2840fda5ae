"""Which names are in a text, decided from its form alone."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from app.features.feature import Context, Feature, Opened
from app.features.texts.extract import EXTRACT_PATH, add_extract
from app.features.texts.http import PARSE_LIMITS, PARSE_PATH, add_parse
from app.web.client_network import client_of
from app.web.operations import Face


def open_texts(context: Context) -> Opened:
    """The endpoints /api/parse and /api/extract."""

    def add(app: FastAPI, face: Face) -> None:
        add_parse(app, context.facts.public_url, PARSE_LIMITS, client_of)
        add_extract(app, client_of)

    return Opened(routes=(add,), own_api={PARSE_PATH.encode(): "parse", EXTRACT_PATH.encode(): "extract"})


FEATURE: Final = Feature("texts", "what a text is, and which names are in a text or a list", open=open_texts)
