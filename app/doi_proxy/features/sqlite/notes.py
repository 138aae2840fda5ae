"""The notes of a SQLite store: values that features keep by a name of theirs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

from doi_proxy.features.sqlite.file import WRITE_TIMEOUT, connect, translate_open_errors
from doi_proxy.features.sqlite.rows import Rows

#: The longest value, in bytes: those of features are far shorter. It is read in one turn of the event loop.
_MAX_BYTES: Final = 8 * 1024 * 1024


def read_note(rows: Rows, name: str) -> bytes | None:
    """The value of a note. A long one counts as none. Raises StoreError."""
    query = "SELECT data FROM notes WHERE name = ? AND length(data) <= ?"
    (data,) = rows.row(query, (name, _MAX_BYTES)) or (None,)
    # A damaged row can have a value of any type.
    return data if isinstance(data, bytes) else None


def write_note(path: Path, name: str, data: bytes) -> None:
    """Write the value of a note. Blocks. Raises StoreError."""
    with translate_open_errors(path, "for writing"), closing(connect(path, timeout=WRITE_TIMEOUT)) as connection:
        connection.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, data))


def try_notes(path: Path) -> None:
    """Raise StoreError if no note can be written now. Waits for no lock."""
    with translate_open_errors(path, "for writing"), closing(connect(path, timeout=0.0)) as connection:
        connection.execute("BEGIN IMMEDIATE")
