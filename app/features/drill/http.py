"""`POST /admin/drill`: refuse queries to the upstream for some seconds."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field

from app.features.drill.drill import Drill
from app.features.drill.feature import DRILL_PATH
from app.features.operators import audit

#: The longest drill, in seconds.
MOST_SECONDS: Final = 3600


class DrillRequest(BaseModel):
    """A drill to begin."""

    model_config = ConfigDict(extra="forbid")

    seconds: int = Field(ge=0, le=MOST_SECONDS, description="How long; 0 ends a drill.", examples=[60])
    people: bool = Field(False, description="Whether queries that people wait for are refused too.")


class DrillReport(BaseModel):
    """A drill that has begun."""

    until: float = Field(description="Its end, in seconds since the epoch.")


def add_drill(app: FastAPI, drill: Drill) -> None:
    """Add the route to the application behind the gate of operators."""

    @app.post(
        DRILL_PATH,
        tags=["service"],
        summary="Refuse queries to the upstream for some seconds",
        response_description="The end of the drill.",
    )
    async def begin(request: Request, body: DrillRequest) -> DrillReport:
        until = drill.begin(body.seconds, people=body.people)
        audit(request, "drill", body.model_dump(), f"until {until:.0f}")
        return DrillReport(until=until)
