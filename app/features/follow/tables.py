"""What a SQLite store has for replication: the primaries of a store of an earlier release are moved."""

from __future__ import annotations

from typing import Final

from app.features.follow.primaries import move_primaries
from app.features.sqlite.feature_tables import Table

TABLES: Final = (Table(move_primaries),)
