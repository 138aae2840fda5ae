"""What is recorded of readers: the access log, and `/privacy`, the page that says it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from doi_proxy.features import feature
from doi_proxy.system.options import SettingsGroup

if TYPE_CHECKING:
    from fastapi import FastAPI

    from doi_proxy.web.redirect import Face


class AccessLogSettings(SettingsGroup):
    """The access log."""

    access_log: Literal["off", "json", "text"] = Field(
        "off",
        description="Format of the access log on standard output: `off`, `json` objects, or `text` as "
        "`name=value`. Turn it on if the front proxy has no log of its own.",
    )


class Privacy(feature.Feature):
    """The stage that logs each answer, the page, and its link in the footer of every page."""

    name = "privacy"
    summary = "the access log, with as much as the privacy level allows, and /privacy, the page about it"
    settings = AccessLogSettings

    def open(self, core: feature.Core, others: feature.Others) -> Iterable[feature.Part]:
        """Open the log that the settings describe, or take the one that was supplied."""
        from doi_proxy.features.privacy import line_writer

        form, level = self.context.settings.group(AccessLogSettings).access_log, self.context.settings.privacy_level
        if self.context.access_log is not None:
            return (self.context.access_log,)
        if form == "off":
            return ()
        # 1 is standard output.
        writer = line_writer.LineWriter(1, line_writer.LineFormat(form, level))
        log = line_writer.new_access_log(level, self.context.clock, writer.write)
        return log, line_writer.LineService(writer, core.meter.counter(line_writer.LOST_LINES))

    def add_routes(self, app: FastAPI, face: Face, opened: feature.Opened) -> None:
        """Add the page."""
        from doi_proxy.features.privacy.page import add_privacy

        add_privacy(app, face, self.context.settings, opened.core.upstream.guards)
