"""The format of a SQLite store, and the rewriting of entries of earlier releases. The file has its progress."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from app.features.sqlite.file import WRITE_TIMEOUT, connect, is_damage, mark_damaged, translate_open_errors
from app.features.store_format import REWRITE_PAGE, Rewrite, is_readable
from app.features.stored_entry import has_old_layout, pack, unpack

_STATE: Final = "SELECT place, visited, rewritten, unreadable FROM rewriting"
# SQLite sorts blobs, which a damaged row can have as its key, after all text.
_PAGE: Final = "SELECT key, data FROM entries WHERE key > ? AND key < x'' ORDER BY key LIMIT ?"


def rewrite_page(path: Path) -> Rewrite | None:
    """Rewrite the next entries in one transaction. None if there is nothing to rewrite. Blocks. Raises StoreError."""
    with translate_open_errors(path, "for writing"), closing(connect(path, timeout=WRITE_TIMEOUT)) as connection:
        try:
            # The place and the entries change together: a process that is killed loses nothing and repeats nothing.
            connection.execute("BEGIN IMMEDIATE")
            progress = _rewrite_page(connection)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if is_damage(error):
                mark_damaged(path)
            raise
        return progress


def _rewrite_page(connection: sqlite3.Connection) -> Rewrite | None:
    state = connection.execute(_STATE).fetchone()
    if state is None:
        return None
    place, *counts = state
    rows = connection.execute(_PAGE, (place if isinstance(place, str) else "", REWRITE_PAGE)).fetchall()
    old = [(key, data) for key, data in rows if has_old_layout(data)]
    readable = [(key, data) for key, data in old if is_readable(key, data)]
    new = [(pack(entry, with_target=True), key) for key, data in readable if (entry := unpack(key, data)) is not None]
    connection.executemany("UPDATE entries SET data = ? WHERE key = ?", new)
    visited, rewritten, unreadable = (
        _number(before) + more for before, more in zip(counts, (len(rows), len(new), len(old) - len(new)), strict=True)
    )
    if len(rows) == REWRITE_PAGE:
        connection.execute(
            "UPDATE rewriting SET place = ?, visited = ?, rewritten = ?, unreadable = ?",
            (rows[-1][0], visited, rewritten, unreadable),
        )
    else:
        connection.execute("DELETE FROM rewriting")
    (total,) = connection.execute("SELECT entries FROM totals").fetchone() or (0,)
    return Rewrite(visited, _number(total), rewritten, unreadable, is_done=len(rows) < REWRITE_PAGE)


def _number(value: Any) -> int:
    # A damaged row can have values of any type.
    return value if isinstance(value, int) else 0
