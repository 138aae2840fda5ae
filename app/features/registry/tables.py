"""The tables of a SQLite store: the registry records, and the log of changes, which every writer of a file keeps."""

from __future__ import annotations

from typing import Final

from app.features.registry.sqlite_change_log import CHANGE_LOG
from app.features.registry.store_table import REGISTRY_TABLE

TABLES: Final = (REGISTRY_TABLE, CHANGE_LOG)
