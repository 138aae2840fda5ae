"""Handle servers themselves, by the native Handle protocol."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature

FEATURE: Final = Feature(
    "native",
    "handle servers themselves, by the native Handle protocol",
    needs=(),
)
