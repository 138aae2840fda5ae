"""Restricted values for authorised readers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from app.features.options import RELOADED, SettingsGroup


class RestrictedSettings(SettingsGroup):
    """Restricted values for authorised readers."""

    native_restricted: Path | None = Field(
        None,
        description="TOML file with the identity by which this proxy reads values that the public may not read, their "
        "prefixes, and the readers that get them at `/api/restricted/<name>`. It needs handle servers.",
        json_schema_extra=RELOADED,
    )


SETTINGS: Final = RestrictedSettings
TABLES: Final = ("native",)
