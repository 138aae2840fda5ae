"""Redirects through services of the library."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from doi_proxy.features.options import RELOADED, SettingsGroup


class LibrarySettings(SettingsGroup):
    """Redirects through services of the library."""

    library_rules: Path | None = Field(
        None,
        description="TOML file of rules that lead readers through a service of the library, such as EZproxy. A "
        "change takes effect without a reload. Set it if readers reach licensed works through such a "
        "service.",
        json_schema_extra=RELOADED,
    )


SETTINGS: Final = LibrarySettings
TABLES: Final = ("library",)
