"""The upstreams of one process, as the rest of the program uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.upstream.budget import Budget
from app.upstream.guard import Guard
from app.upstream.routed import RoutedSource
from app.upstream.source import AgencySource, Source


@dataclass(frozen=True, slots=True)
class Upstream:
    """The two services of the upstreams, with a breaker for each upstream and one budget."""

    source: Source
    agencies: AgencySource | None
    #: The guard of each upstream by its base URL; all of them share one budget.
    guards: dict[str, Guard]
    budget: Budget
    #: Opens an upstream, or returns the one that is open. None if nothing is queried.
    open_source: Callable[[str], Source] | None = None

    def use_routes(self, routes: Mapping[str, str]) -> None:
        """Put the routes of local records in force: an upstream's URL by prefix. Raises ConfigurationError."""
        if self.open_source is not None and isinstance(self.source, RoutedSource):
            self.source.use_local_routes({prefix: self.open_source(url) for prefix, url in routes.items()})
