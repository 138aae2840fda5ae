"""The probes of `doi-proxy doctor`."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from app.features.options import SECRET, SettingsGroup


class SetupSettings(SettingsGroup):
    """The probes of `doi-proxy doctor`."""

    probe_key: str | None = Field(
        None,
        min_length=16,
        description="Secret that signs the probes of `doi-proxy doctor`. Without it, probes are not answered.",
        json_schema_extra=SECRET,
    )


SETTINGS: Final = SetupSettings
TABLES: Final = ()
