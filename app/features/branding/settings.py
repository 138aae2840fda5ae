"""The institution's own face on the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from app.features.options import RELOADED, SettingsGroup


class BrandingSettings(SettingsGroup):
    """The institution's own face on the pages."""

    branding_name: str = Field(
        "doi-proxy",
        min_length=1,
        max_length=80,
        description="Name of this resolver in the header and the title of every page.",
        json_schema_extra=RELOADED,
    )
    branding_logo: Path | None = Field(
        None,
        description="Logo beside the name: a file .svg, .png, .webp or .jpg of at most 256 KiB.",
        json_schema_extra=RELOADED,
    )
    branding_accent: str = Field(
        "",
        description="Colour of links and buttons in the light scheme, such as `#0b5a73`. A colour without enough "
        "contrast is refused.",
        json_schema_extra=RELOADED,
    )
    branding_accent_dark: str = Field(
        "", description="Colour of links and buttons in the dark scheme.", json_schema_extra=RELOADED
    )
    branding_background: str = Field(
        "", description="Background of the pages in the light scheme.", json_schema_extra=RELOADED
    )
    branding_background_dark: str = Field(
        "", description="Background of the pages in the dark scheme.", json_schema_extra=RELOADED
    )
    branding_home_text: str = Field(
        "",
        description="Text below the heading of the home page, the same in all languages. The files in "
        "`branding_messages` have it for each language.",
        json_schema_extra=RELOADED,
    )
    branding_help_links: str = Field(
        "",
        description="Links in the header of every page: `Label = URL | Label = URL`.",
        json_schema_extra=RELOADED,
    )
    branding_search_links: str = Field(
        "Crossref = https://search.crossref.org/search/works?q={doi}&from_ui=yes | "
        "DataCite = https://commons.datacite.org/doi.org?query={doi}",
        description="Where the not-found page sends readers to search for the title: `Label = URL | Label = URL`. "
        "`{doi}` in a URL is the name.",
        json_schema_extra=RELOADED,
    )
    branding_free_links: str = Field(
        "",
        description="Where pages about a failure send readers for a free copy: `Label = URL | Label = URL`. `{doi}` "
        "in a URL is the name, as in `Unpaywall = https://unpaywall.org/{doi}`.",
        json_schema_extra=RELOADED,
    )
    branding_imprint: str = Field(
        "", description="Address of the institution's imprint, linked in the footer.", json_schema_extra=RELOADED
    )
    branding_privacy: str = Field(
        "",
        description="Address of the institution's privacy statement, linked on `/privacy`.",
        json_schema_extra=RELOADED,
    )
    branding_footer: str = Field("", description="Text in the footer of every page.", json_schema_extra=RELOADED)
    branding_languages: str = Field(
        "en,de,fr,es",
        description="Languages of the pages, separated by commas. A browser that prefers none of them gets the first.",
        json_schema_extra=RELOADED,
    )
    branding_templates: Path | None = Field(
        None,
        description="Folder of Jinja templates that replace or extend those of doi-proxy.",
        json_schema_extra=RELOADED,
    )
    branding_messages: Path | None = Field(
        None,
        description="Folder of language files such as `en.toml`, whose texts replace those of doi-proxy.",
        json_schema_extra=RELOADED,
    )


SETTINGS: Final = BrandingSettings
TABLES: Final = ("branding",)
