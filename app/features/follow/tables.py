"""What a SQLite store has for replication: the primaries of a store of an earlier release are moved."""

from __future__ import annotations

from typing import Final

from app.cache.sqlite.tables import Table
from app.features.follow.primaries import move_primaries

TABLES: Final = (Table(move_primaries),)
