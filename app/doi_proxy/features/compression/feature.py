"""Compressed answers."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.compression.compression import Compression
from doi_proxy.features.feature import Feature, Opened

FEATURE: Final = Feature(
    "compression", "Zstandard or gzip for large answers", open=lambda context: Opened(stages=(Compression(),))
)
