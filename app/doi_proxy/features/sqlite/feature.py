"""The embedded store: one SQLite file, shared by the worker processes of a machine."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.feature import Feature

FEATURE: Final = Feature("sqlite", "the store in a file, shared by the workers of a machine")
