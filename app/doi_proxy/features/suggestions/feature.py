"""What a writer may have meant by a name that does not exist."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from doi_proxy.features.feature import Core, Feature, Others, Part
from doi_proxy.system.options import Settings

if TYPE_CHECKING:
    from doi_proxy.features.suggestions.suggested_names import SuggestedNames


def build_suggested_names(
    settings: Settings, core: Core, public_url: str | None, clock: Callable[[], float] = time.time
) -> SuggestedNames:
    """The names that answers suggest. `public_url` is this resolver's own URL."""
    from doi_proxy.features.suggestions.nearest import NearestNames
    from doi_proxy.features.suggestions.suggested_names import QUERIES, QUERY_TIMEOUT, Existence, SuggestedNames

    existence = Existence(core.resolver, queries=QUERIES, timeout=QUERY_TIMEOUT, bucket=core.background)
    url = urlsplit(public_url or "")
    own_host = url.netloc + url.path.rstrip("/")
    nearest = NearestNames(core.resolver, core.cache, clock)
    return SuggestedNames(existence, frozenset({own_host} if own_host else ()), nearest)


class Suggestions(Feature):
    """The section with suggested names."""

    name = "suggestions"
    summary = "names that a writer may have meant, on pages and in problems"

    names: SuggestedNames

    def open(self, core: Core, others: Others) -> Iterable[Part]:
        """Open the search for names."""
        context = self.context
        self.names = build_suggested_names(context.settings, core, context.public_url, context.clock)
        return (self.names,)
