"""Commands on the store: export, warm, stats."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature

FEATURE: Final = Feature(
    "cache_commands",
    "commands on the store: export, warm, stats",
    needs=("admin", "bundles", "follow", "lists"),
)
