"""What texts are, decided from their form alone."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from app.features.feature import Context, Feature, Opened
from app.features.parse.http import PARSE_LIMITS, PARSE_PATH, add_parse
from app.web.operations import Face


def open_parse(context: Context) -> Opened:
    """The endpoint /api/parse."""

    def add(app: FastAPI, face: Face) -> None:
        add_parse(app, context.facts.public_url, PARSE_LIMITS)

    return Opened(routes=(add,), own_api={PARSE_PATH.encode(): "parse"})


FEATURE: Final = Feature(
    "parse", "what a text is: a DOI name, a shortDOI, a handle or none", needs=("suggestions", "lists"), open=open_parse
)
