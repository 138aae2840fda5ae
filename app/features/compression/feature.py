"""Compressed answers."""

from __future__ import annotations

from typing import Final

from app.features.compression.compression import Compression
from app.features.feature import Feature, Opened

FEATURE: Final = Feature(
    "compression", "Zstandard or gzip for large answers", open=lambda context: Opened(stages=(Compression(),))
)
