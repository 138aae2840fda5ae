"""The institution's own face on the pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from doi_proxy.features.feature import Feature, Opened
from doi_proxy.system.options import RELOADED, Settings, SettingsGroup

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.system.check import Finding, Inspection
    from doi_proxy.web.pages import Pages
    from doi_proxy.web.redirect import Face


class BrandingSettings(SettingsGroup):
    """The institution's own face on the pages."""

    tables = ("branding",)

    branding_name: str = Field(
        "doi-proxy",
        min_length=1,
        max_length=80,
        description="Name of this resolver in the header and the title of every page. With the default, pages "
        "call it DOI resolver, in the language of the reader. Set it to the name that your readers know.",
        json_schema_extra=RELOADED,
    )
    branding_folder: Path | None = Field(
        None,
        description="Folder with `branding.toml`: the contact, logo, colours, links and languages of this "
        "institution, and beside it its texts, `header.html` and `footer.html`. Set it to show that the "
        "service is yours.",
        json_schema_extra=RELOADED,
    )


class BrandedPages(Feature):
    """The institution's face in place of ours, at the start and at each reload."""

    name = "branding"
    summary = "the institution's own name, logo, colours, links, texts and HTML on the pages"
    settings = BrandingSettings

    @classmethod
    def check(cls, inspection: Inspection) -> Iterator[Finding]:
        """A file or a text that cannot be used."""
        # The message names the setting or the file.
        yield from inspection.find_refusal("", lambda: rebrand(inspection.open_pages(), inspection.settings))

    def add_routes(self, app: FastAPI, face: Face, opened: Opened) -> None:
        """Change the pages. Raises ConfigurationError."""
        if self.context.settings.group(BrandingSettings) != BrandingSettings():
            rebrand(face.pages, self.context.settings)

        def reload(new: Settings) -> None:
            rebrand(face.pages, new)
            opened.core.forget_prepared()

        self.context.reloads.on_reload(reload, *BrandingSettings.model_fields)


def rebrand(pages: Pages, settings: Settings) -> None:
    """Read the settings and their files. Raises ConfigurationError, and then changes nothing."""
    from doi_proxy.features.branding.branding import read_branding

    pages.rebrand(read_branding(settings.group(BrandingSettings), pages.packages))
