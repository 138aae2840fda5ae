"""The parents that a SQLite store follows."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

from app.cache.sqlite.file import WRITE_TIMEOUT, connect, translate_open_errors
from app.cache.sqlite.rows import Rows
from app.features.follow.parents import MAX_PARENTS, ParentState

_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE name = 'parents'"
_SELECT: Final = "SELECT url, cursor, completed_at FROM parents ORDER BY url LIMIT ?"


def read_parents(rows: Rows) -> tuple[ParentState, ...]:
    """The state of each parent, by URL. A file of an earlier release has none. Raises StoreError."""
    if rows.row(_TABLE) is None:
        return ()
    found = rows.rows(_SELECT, (MAX_PARENTS,))
    # A damaged row can have values of any type.
    return tuple(
        ParentState(url, cursor, at)
        for url, cursor, at in found
        if isinstance(url, str) and isinstance(cursor, str) and isinstance(at, float)
    )


def save_parent(path: Path, state: ParentState) -> None:
    """Write the state of a parent. Blocks. Raises StoreError."""
    with translate_open_errors(path, "for writing"), closing(connect(path, timeout=WRITE_TIMEOUT)) as connection:
        values = (state.url, state.cursor, state.completed_at)
        connection.execute("INSERT OR REPLACE INTO parents VALUES (?, ?, ?)", values)
