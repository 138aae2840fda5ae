"""The counter of fetches."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.feature import CounterData

FETCHES: Final = CounterData(
    "metadata_fetches",
    "Fetches of metadata, by result.",
    "result",
    ("work", "none", "failed", "refused"),
)
