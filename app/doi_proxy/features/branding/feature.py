"""The institution's own face on the pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fastapi import FastAPI

from doi_proxy.features.branding.branding import read_branding
from doi_proxy.features.branding.settings import BrandingSettings
from doi_proxy.features.check import Finding, Inspection
from doi_proxy.features.feature import Context, Feature, Opened
from doi_proxy.features.options import Settings
from doi_proxy.web.operations import Face
from doi_proxy.web.pages import Pages


def open_branding(context: Context) -> Opened:
    """Put the institution's face in place of ours, at the start and at each reload. Raises ConfigurationError."""

    def add(_: FastAPI, face: Face) -> None:
        if context.settings.group(BrandingSettings) != BrandingSettings():
            rebrand(face.pages, context.settings)

        def reload(new: Settings) -> None:
            rebrand(face.pages, new)
            context.core.forget_prepared()

        names = BrandingSettings.model_fields
        context.reloads.on_reload(reload, *names)

    return Opened(routes=(add,))


def rebrand(pages: Pages, settings: Settings) -> None:
    """Read the settings and their files. Raises ConfigurationError, and then changes nothing."""
    pages.rebrand(read_branding(settings.group(BrandingSettings), pages.packages))


def find_branding_problems(inspection: Inspection) -> Iterator[Finding]:
    """A file, a text or a template that cannot be used."""
    # The message names the setting or the file.
    yield from inspection.find_refusal("", lambda: rebrand(inspection.open_pages(), inspection.settings))


FEATURE: Final = Feature(
    "branding",
    "the institution's own name, logo, colours, links, texts and templates on the pages",
    open=open_branding,
    check=find_branding_problems,
)
