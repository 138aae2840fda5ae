"""The parents of a SQLite store of release 0.2.0, which had a table of them."""

from __future__ import annotations

import sqlite3
from typing import Final

from app.cache.sqlite.tables import Table
from app.features.follow.parents import NOTE, ParentState, encode_parents

_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE name = 'parents'"


def move_parents(connection: sqlite3.Connection, _: float) -> None:
    """Move the rows of the table into the note, and drop the table. Raises sqlite3.Error."""
    if connection.execute(_TABLE).fetchone() is None:
        return
    connection.execute("BEGIN IMMEDIATE")
    found = connection.execute("SELECT url, cursor, completed_at FROM parents ORDER BY url").fetchall()
    # A damaged row can have values of any type.
    states = [
        ParentState(url, cursor, at)
        for url, cursor, at in found
        if isinstance(url, str) and isinstance(cursor, str) and isinstance(at, float)
    ]
    connection.execute("INSERT OR IGNORE INTO notes VALUES (?, ?)", (NOTE, encode_parents(states)))
    connection.execute("DROP TABLE parents")
    connection.execute("COMMIT")


PARENTS_TABLE: Final = Table(move_parents)
