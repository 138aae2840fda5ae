"""/healthz and /readyz."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI

from app.features.feature import Context, Feature, Opened
from app.features.health.http import add_health
from app.features.health.readiness import describe_readiness
from app.features.health.upstream_states import UpstreamStates
from app.features.shared_states import SharedStates
from app.web.operations import Face


def open_health(context: Context) -> Opened:
    """The routes, and what they show of the upstreams."""
    memory = context.reloads.memories.get("upstreams")
    states = UpstreamStates(context.core.upstream.guards, SharedStates(memory), context.clock)
    context.provide(states)

    def add(app: FastAPI, face: Face) -> None:
        add_health(app, lambda: describe_readiness(context))

    return Opened(services=(states,), routes=(add,))


FEATURE: Final = Feature("health", "/healthz and /readyz", open=open_health)
