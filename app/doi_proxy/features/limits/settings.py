"""Limits of clients."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from doi_proxy.features.options import MAX_RATE, SettingsGroup

#: Seconds of a client's rate that are saved up while it sends nothing.
_BURST_SECONDS: Final = 4.0
#: A page and the links that a reader opens from it are some dozens of requests.
_LEAST_BURST: Final = 100.0


class LimitSettings(SettingsGroup):
    """Limits of clients."""

    client_rate: float = Field(
        0.0,
        ge=0,
        le=MAX_RATE,
        description="Limit of one client's requests a second, answers from the cache included; `0` for no limit. "
        "Set it on a service that strangers reach.",
    )
    client_burst: float = Field(
        default_factory=lambda known: min(max(_LEAST_BURST, _BURST_SECONDS * known["client_rate"]), float(MAX_RATE)),
        ge=1,
        le=MAX_RATE,
        description="Requests that one idle client can send at once, if `client_rate` is set. If it is not set, "
        "it is what `client_rate` allows in 4 seconds, and 100 at least. Set it if readers get 429 "
        "for a page with many links.",
    )
    client_allow_file: Path | None = Field(
        None,
        description="File of networks, one a line, that no limit of requests concerns; read again at SIGHUP. Set "
        "it if many readers share an address.",
    )
    client_deny_file: Path | None = Field(
        None,
        description="File of networks, one a line, whose requests get 403; read again at SIGHUP. Set it to keep a "
        "crawler out.",
    )


SETTINGS: Final = LimitSettings
TABLES: Final = ("client",)
