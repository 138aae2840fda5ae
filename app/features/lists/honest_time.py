"""How long a list takes: what its lookups can use of the budget, and an estimate from that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from app.features.check import Finding, Inspection
from app.features.lists.settings import BatchSettings
from app.features.options import Settings
from app.upstream.budget import RESERVED_SHARE


@dataclass(frozen=True, slots=True)
class Pace:
    """What one list can use: upstream queries a second, so many at once after a quiet time, and so many in progress."""

    rate: float
    burst: float
    places: int

    def estimate(self, names: int, latency: float) -> int:
        """Seconds for `names` of which the cache has none, if a query takes `latency` seconds."""
        return ceil(max((names - self.burst) / self.rate, names * latency / self.places, 0.0))


def read_pace(settings: Settings) -> Pace:
    """The pace of a list that has the budget's share of lists for itself."""
    reserved = 1.0 - RESERVED_SHARE
    places = min(settings.group(BatchSettings).batch_concurrency, _count_places(settings))
    return Pace(settings.upstream_rate, reserved * settings.upstream_burst, places)


def _count_places(settings: Settings) -> int:
    """The upstream queries of lists that one process can have in progress."""
    places = max(1, settings.upstream_max_concurrency // (settings.workers * settings.upstream_machines))
    return max(1, int(places * (1.0 - RESERVED_SHARE)))


def find_unreachable_concurrency(inspection: Inspection) -> Iterator[Finding]:
    """A warning if lookups of a list would wait for places that they never get."""
    settings = inspection.settings
    wanted, places = settings.group(BatchSettings).batch_concurrency, _count_places(settings)
    if inspection.is_set("batch_concurrency") and wanted > places:
        yield Finding(
            "warning",
            inspection.source("batch_concurrency"),
            f"{wanted} lookups of a list cannot be in progress: lists have {places} of the "
            f"upstream_max_concurrency {settings.upstream_max_concurrency}",
            f"raise upstream_max_concurrency, or set batch_concurrency to {places}; see docs/batch.md",
        )
