"""The institution's own face on the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from doi_proxy.features.options import RELOADED, SettingsGroup


class BrandingSettings(SettingsGroup):
    """The institution's own face on the pages."""

    branding_name: str = Field(
        "doi-proxy",
        min_length=1,
        max_length=80,
        description="Name of this resolver in the header and the title of every page. Set it to the name that "
        "your readers know.",
        json_schema_extra=RELOADED,
    )
    branding_folder: Path | None = Field(
        None,
        description="Folder with `branding.toml`: the contact, logo, colours, links and languages of this "
        "institution, and beside it its texts and templates. Set it to show that the service is "
        "yours.",
        json_schema_extra=RELOADED,
    )


SETTINGS: Final = BrandingSettings
TABLES: Final = ("branding",)
