"""The tables of a SQLite store with the registry records."""

from __future__ import annotations

from typing import Final

from app.features.registry.store_table import REGISTRY_TABLE

TABLES: Final = (REGISTRY_TABLE,)
