"""The routes of /healthz and /readyz."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Response

from doi_proxy.features.status.models import Health, Readiness


def add_health(app: FastAPI, readiness: Callable[[], Awaitable[Readiness]]) -> None:
    """Answer /healthz and /readyz."""

    @app.get("/healthz", tags=["Operate"], summary="Is the process alive?", response_description="It is.")
    async def healthz() -> Health:
        return Health(status="ok")

    @app.get(
        "/readyz",
        tags=["Operate"],
        summary="Can it answer?",
        response_description="It can, from its cache at least.",
        responses={503: {"model": Readiness, "description": "It cannot: send requests elsewhere."}},
    )
    async def readyz(response: Response) -> Readiness:
        state = await readiness()
        response.status_code = 200 if state.ready else 503
        return state

    for route in (healthz, readyz):
        app.add_api_route("/" + route.__name__, route, methods=["HEAD"], include_in_schema=False, response_model=None)
