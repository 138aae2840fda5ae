"""`/admin/drill` and `doi-proxy drill`: what happens without the upstream, for some seconds."""

from __future__ import annotations

from typing import Final

from app.features.drill.drill import Drill
from app.features.drill.http import DRILL_PATH, add_drill
from app.features.feature import Context, Feature, Opened, Service


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
    routes = {DRILL_PATH.encode(): lambda app, _: add_drill(app, drill)}
    return Opened(services=(DrillService(drill),), operator_routes=routes)


FEATURE: Final = Feature(
    "drill",
    "what would fail without the upstream: counted, or tried",
    needs=("admin",),
    open=open_drill,
)
