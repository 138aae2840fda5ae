"""The headers that records may set."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from app.features.options import SettingsGroup


class RecordHeaderSettings(SettingsGroup):
    """The headers that records may set."""

    record_headers: str = Field(
        "",
        pattern=r"^[A-Za-z0-9-]*(\s*,\s*[A-Za-z0-9-]+)*$",
        description="Headers that 10320/headers values are allowed to set on a redirect, separated by commas. "
        "Headers that control browsers, front proxies or the connection are refused.",
    )


SETTINGS: Final = RecordHeaderSettings
TABLES: Final = ()
