"""The notes of a SQLite store: values that features keep by a name of theirs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from app.features.sqlite.file import WRITE_TIMEOUT, connect, translate_open_errors
from app.features.sqlite.rows import Rows


def read_note(rows: Rows, name: str) -> bytes | None:
    """The value of a note. A file of an earlier release has none. Raises StoreError."""
    if not rows.has_table("notes"):
        return None
    (data,) = rows.row("SELECT data FROM notes WHERE name = ?", (name,)) or (None,)
    # A damaged row can have a value of any type.
    return data if isinstance(data, bytes) else None


def write_note(path: Path, name: str, data: bytes) -> None:
    """Write the value of a note. Blocks. Raises StoreError."""
    with translate_open_errors(path, "for writing"), closing(connect(path, timeout=WRITE_TIMEOUT)) as connection:
        connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, data))
