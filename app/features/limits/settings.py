"""Limits of clients."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from app.features.options import MAX_RATE, SettingsGroup


class LimitSettings(SettingsGroup):
    """Limits of clients."""

    client_rate: float = Field(
        0.0,
        ge=0,
        le=MAX_RATE,
        description="Limit of one client's requests a second, answers from the cache included; `0` for no limit.",
    )
    client_burst: float = Field(
        100.0, ge=1, le=MAX_RATE, description="Requests that one idle client can send at once, if `client_rate` is set."
    )
    client_allow_file: Path | None = Field(
        None,
        description="File of networks, one a line, that no limit of requests concerns; read again at SIGHUP.",
    )
    client_deny_file: Path | None = Field(
        None, description="File of networks, one a line, whose requests get 403; read again at SIGHUP."
    )


SETTINGS: Final = LimitSettings
TABLES: Final = ("client",)
