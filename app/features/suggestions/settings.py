"""Names that answers suggest."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from app.features.options import SettingsGroup


class SuggestionSettings(SettingsGroup):
    """Names that answers suggest."""

    suggestion_queries: int = Field(
        2,
        ge=0,
        le=5,
        description="Limit of upstream queries for one not-found page that find out which suggested names exist. All "
        "other queries go first. With 0, the rules alone decide the order.",
    )
    suggestion_cached: bool = Field(
        True,
        description="Show on a not-found page up to three cached names that differ from it by one slip. Names of local "
        "records and of registry files are always shown.",
    )


SETTINGS: Final = SuggestionSettings
TABLES: Final = ()
