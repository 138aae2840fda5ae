"""Reads the earlier targets of names in the file of a SQLite store. The feature `help` keeps them."""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

#: Targets of one name that are kept.
MAX_TARGETS: Final = 3

_COLUMN: Final = "SELECT 1 FROM pragma_table_info('earlier_targets') WHERE name = 'replaced'"
_OF_NAME: Final = "SELECT target, seen, replaced FROM earlier_targets WHERE key = ? ORDER BY number DESC LIMIT ?"


class EarlierTarget(NamedTuple):
    """A target that a name had: when it was last confirmed, and when an answer with another one replaced it.

    Both are in seconds since the epoch.
    """

    target: str
    seen: float
    replaced: float


def has_earlier_targets(connection: sqlite3.Connection) -> bool:
    """Whether the file has them, and when they were replaced. Raises sqlite3.Error."""
    return connection.execute(_COLUMN).fetchone() is not None


def find_earlier_targets(connection: sqlite3.Connection, key: str) -> list[EarlierTarget]:
    """The earlier targets of a name, the newest first. Raises sqlite3.Error."""
    rows = connection.execute(_OF_NAME, (key, MAX_TARGETS)).fetchall()
    # A damaged row can have values of any type.
    return [
        EarlierTarget(target, seen, replaced)
        for target, seen, replaced in rows
        if isinstance(target, str) and isinstance(seen, float) and isinstance(replaced, float)
    ]
