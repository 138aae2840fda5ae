"""`/admin/drill` and `doi-proxy drill`: what happens without the upstream, for some seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.features.drill.drill import Drill
from app.features.feature import Context, Feature, Opened, Service

if TYPE_CHECKING:
    from fastapi import FastAPI

    from app.web.operations import Face

DRILL_PATH: Final = "/admin/drill"


class DrillService(Service):
    """Follows the drills that other workers begin and end."""

    def __init__(self, drill: Drill) -> None:
        self._drill = drill

    def tick(self) -> None:
        """Read the file of the workers."""
        self._drill.refresh()


def open_drill(context: Context) -> Opened:
    """The route behind the gate of operators, if there is one, and what refuses queries."""
    reloads = context.reloads
    drill = Drill(
        context.shared_file("drill.json"), context.clock, context.core.upstream.budget, reloads.announce_change
    )
    reloads.on_change(drill.refresh)

    def add(app: FastAPI, _: Face) -> None:
        from app.features.drill.http import add_drill  # noqa: PLC0415 - only for the admin API

        add_drill(app, drill)

    return Opened(services=(DrillService(drill),), operator_routes={DRILL_PATH.encode(): add})


FEATURE: Final = Feature(
    "drill",
    "what would fail without the upstream: counted, or tried",
    needs=("admin",),
    open=open_drill,
)
