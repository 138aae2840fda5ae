"""Which names are in a text, decided from its form alone."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from doi_proxy.features.feature import Context, Feature, Opened
from doi_proxy.features.texts.extract import EXTRACT_PATH, add_extract
from doi_proxy.features.texts.http import PARSE_LIMITS, PARSE_PATH, add_parse
from doi_proxy.web.client_network import client_of
from doi_proxy.web.operations import Face


def open_texts(context: Context) -> Opened:
    """The endpoints /api/parse and /api/extract."""

    def add(app: FastAPI, face: Face) -> None:
        add_parse(app, context.facts.public_url, PARSE_LIMITS, client_of)
        add_extract(app, client_of)

    return Opened(routes=(add,), own_api={PARSE_PATH.encode(): "parse", EXTRACT_PATH.encode(): "extract"})


FEATURE: Final = Feature("texts", "what a text is, and which names are in a text or a list", open=open_texts)
