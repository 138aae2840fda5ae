"""Library copy: redirects through a service of the institution, such as EZproxy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from doi_proxy.errors import InvalidRequest
from doi_proxy.features import feature
from doi_proxy.system.check import Service
from doi_proxy.system.options import RELOADED, SettingsGroup

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.system.check import Finding, Inspection
    from doi_proxy.web.redirect import Face


class LibrarySettings(SettingsGroup):
    """Redirects through services of the library."""

    tables = ("library",)

    library_rules: Path | None = Field(
        None,
        description="TOML file of rules that lead readers through a service of the library, such as EZproxy. A "
        "change takes effect without a reload. Set it if readers reach licensed works through such a "
        "service.",
        json_schema_extra=RELOADED,
    )


class CrossSiteForm(InvalidRequest):
    """A page of another site sent this form; open the page of this resolver and send the form there."""

    status = 403
    token = "cross-site-form"
    title = "A page of another site sent the form"


class LibraryCopy(feature.Feature, Service):
    """The stage of detours, and the page of preferences."""

    name = "library"
    summary = "library copy: redirects through a service of the institution"
    settings = LibrarySettings

    @classmethod
    def check(cls, inspection: Inspection) -> Iterator[Finding]:
        """Every problem in the file of rules, with its line; among them are expectations that do not hold."""
        from doi_proxy.features.library.library import RULES_FILE

        return RULES_FILE.check(inspection)

    def open(self, core: feature.Core, others: feature.Others) -> Iterable[feature.Part]:
        """Put the rules in force. Raises ConfigurationError for a file with a problem."""
        from doi_proxy.features.library.library import COPIES, RULES_FILE, Library, Preferences
        from doi_proxy.store.kept_file import KeptFile

        library = Library(core.meter.counter(COPIES), core.prefixes)
        library.followers.append(core.forget_prepared)
        self._file = KeptFile(RULES_FILE, library.use, self.context.settings)
        self.context.reloads.on_reload(self._file.reload, "library_rules")
        self._preferences = Preferences(library, core.link, self.context.public_url)
        return library, self._file, self

    def ready(self) -> Mapping[str, str]:
        """Whether the rules of the file are in force."""
        return {} if self._file.path is None else {"library_rules": self._file.state}

    def add_routes(self, app: FastAPI, face: Face, opened: feature.Opened) -> None:
        """Add the page."""
        self._preferences.add_to(app, face)
