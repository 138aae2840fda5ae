"""What a writer may have meant by a name that does not exist."""

from __future__ import annotations

import time
from typing import Any, Final
from urllib.parse import urlsplit

from doi_names.name import HandleName
from doi_proxy.features.feature import Context, Feature, Opened
from doi_proxy.features.options import Settings
from doi_proxy.features.suggestions.name_search import NameSearch
from doi_proxy.features.suggestions.nearest import NearestNames
from doi_proxy.features.suggestions.suggested_names import (
    BUDGET_SECONDS,
    BUDGET_SHARE,
    QUERIES,
    QUERY_TIMEOUT,
    Existence,
    SuggestedNames,
)
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.budget import LocalBucket
from doi_proxy.web.shown_name import show_names


def build_suggested_names(
    settings: Settings, resolver: Resolver, public_url: str | None, nearest: NearestNames | None = None
) -> SuggestedNames:
    """The names that answers suggest. `public_url` is this resolver's own URL."""
    # The processes of all machines have this share together.
    rate = BUDGET_SHARE * settings.upstream_rate / (settings.workers * settings.upstream_machines)
    bucket = LocalBucket(rate, max(1.0, rate * BUDGET_SECONDS), time.monotonic)
    existence = Existence(resolver, queries=QUERIES, timeout=QUERY_TIMEOUT, bucket=bucket)
    url = urlsplit(public_url or "")
    own_host = url.netloc + url.path.rstrip("/")
    return SuggestedNames(existence, frozenset({own_host} if own_host else ()), nearest)


def open_suggestions(context: Context) -> Opened:
    """The section with suggested names."""
    search = NameSearch(context.core.resolver, context.core.cache, context.clock)
    nearest = NearestNames(search, context.clock)
    names = build_suggested_names(context.settings, context.core.resolver, context.facts.public_url, nearest)
    context.provide(names)
    return Opened(sections=(names,))


def _sample_facts() -> dict[str, dict[str, Any]]:
    """The facts of a sample of the block, by its template."""
    names = show_names([HandleName("10.1000/182")])
    return {"suggestions": {"registered": names, "suggestions": names, "around": names}}


FEATURE: Final = Feature(
    "suggestions",
    "names that a writer may have meant, on pages and in problems",
    open=open_suggestions,
    samples=_sample_facts,
)
