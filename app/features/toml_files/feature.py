"""TOML files of an operator that are read again when they change."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature

FEATURE: Final = Feature("toml_files", "TOML files of an operator, with the place of what is wrong in them")
