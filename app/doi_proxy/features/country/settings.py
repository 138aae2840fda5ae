"""The country of a client."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from doi_proxy.features.options import SettingsGroup


class CountrySettings(SettingsGroup):
    """The country of a client."""

    country_database: Path | None = Field(
        None,
        description="MMDB file that maps addresses to countries, for records that choose a location by country. "
        "None is included. It needs `pip install 'doi-proxy[country]'`. Set it if the names that you "
        "serve have such records.",
    )


SETTINGS: Final = CountrySettings
TABLES: Final = ()
