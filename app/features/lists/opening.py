"""Builds the batch engine and the suggestions from the settings, for HTTP, commands and assistants."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit

from app.assembly.resolving import Parts
from app.assembly.settings import Settings
from app.features.lists.batch import BatchBounds, Batches
from app.features.lists.verdict import Verdict
from app.features.suggestions.existence import Existence
from app.features.suggestions.suggested_names import SuggestedNames
from app.resolver.destination import Destinations
from app.resolver.prefix_chain import PrefixChain
from app.resolver.resolver import Resolver


def build_batches(
    parts: Parts,
    clock: Callable[[], float] = time.time,
    *,
    prefixes: PrefixChain | None = None,
    count: Callable[[Verdict], None] = lambda verdict: None,
) -> Batches:
    """The engine. `count` is called with the verdict of each row."""
    settings, chain = parts.settings, prefixes or PrefixChain()
    return Batches(
        parts.resolver,
        Destinations(parts.resolver, chain, resolves=settings.resolve),
        chain,
        BatchBounds(
            concurrency=settings.batch_concurrency,
            patience=settings.batch_wait_timeout,
        ),
        clock,
        time.monotonic,
        build_suggested_names(settings, parts.resolver),
        count,
    )


def build_suggested_names(settings: Settings, resolver: Resolver) -> SuggestedNames:
    """The names that answers suggest."""
    existence = Existence(
        resolver,
        queries=settings.suggestion_queries,
        patience=settings.suggestion_timeout,
    )
    public_url = urlsplit(settings.public_url or "")
    own_host = public_url.netloc + public_url.path.rstrip("/")
    return SuggestedNames(existence, frozenset({own_host} if own_host else ()))
