"""The access log."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from doi_proxy.features.options import SettingsGroup


class AccessLogSettings(SettingsGroup):
    """The access log."""

    access_log: Literal["off", "json", "text"] = Field(
        "off",
        description="Format of the access log on standard output: `off`, `json` objects, or `text` as "
        "`name=value`. Turn it on if the front proxy has no log of its own.",
    )


SETTINGS: Final = AccessLogSettings
TABLES: Final = ()
