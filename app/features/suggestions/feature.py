"""What a writer may have meant by a name that does not exist."""

from __future__ import annotations

from typing import Final

from app.features.feature import Context, Feature, Opened
from app.features.suggestions.opening import build_suggested_names


def open_suggestions(context: Context) -> Opened:
    """The section with suggested names."""
    names = build_suggested_names(context.settings, context.core.resolver, context.facts.public_url)
    context.provide(names)
    return Opened(sections=(names,))


FEATURE: Final = Feature(
    "suggestions", "names that a writer may have meant, on pages and in problems", open=open_suggestions
)
