"""/healthz and /readyz."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from app.features.feature import Context, Feature, Opened
from app.features.health.http import add_health
from app.features.health.readiness import describe_readiness
from app.web.operations import Face


def open_health(context: Context) -> Opened:
    """The routes."""

    def add(app: FastAPI, face: Face) -> None:
        add_health(app, lambda: describe_readiness(context))

    return Opened(routes=(add,))


FEATURE: Final = Feature("health", "/healthz and /readyz", open=open_health)
