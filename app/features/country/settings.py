"""The country of a client."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from app.features.options import SettingsGroup


class CountrySettings(SettingsGroup):
    """The country of a client."""

    country_database: Path | None = Field(
        None,
        description="MMDB file that maps addresses to countries, for records that choose a location by country. "
        "None is included. It needs `pip install 'doi-proxy[country]'`.",
    )


SETTINGS: Final = CountrySettings
TABLES: Final = ()
