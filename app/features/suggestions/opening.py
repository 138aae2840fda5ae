"""Builds the names that answers suggest."""

from __future__ import annotations

from urllib.parse import urlsplit

from app.features.options import Settings
from app.features.suggestions.existence import Existence
from app.features.suggestions.settings import SuggestionSettings
from app.features.suggestions.suggested_names import SuggestedNames
from app.resolver.resolver import Resolver


def build_suggested_names(settings: Settings, resolver: Resolver, public_url: str | None) -> SuggestedNames:
    """The names that answers suggest. `public_url` is this resolver's own URL."""
    group = settings.group(SuggestionSettings)
    existence = Existence(resolver, queries=group.suggestion_queries, patience=group.suggestion_timeout)
    url = urlsplit(public_url or "")
    own_host = url.netloc + url.path.rstrip("/")
    return SuggestedNames(existence, frozenset({own_host} if own_host else ()))
