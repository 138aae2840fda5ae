"""One client of a running proxy, for all commands."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature

FEATURE: Final = Feature(
    "proxy_client",
    "one client of a running proxy, for all commands",
    needs=(),
)
