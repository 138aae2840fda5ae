"""What features keep in the file of a SQLite store, beside the entries. The store works without any of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cache.entry import Entry, RegistryEntry

#: Reads the first row of a query. Raises StoreError.
ReadRow = Callable[[str, tuple[object, ...]], Any]


@dataclass(frozen=True, slots=True)
class Records:
    """Records that answer names without an entry."""

    #: Their table. A file has it after it was opened for writing.
    table: str
    #: The record of a key. Also raises DamagedEntry.
    find: Callable[[ReadRow, str], RegistryEntry | None]
    #: Of keys, the likeliest first, those with a record, and the keys of records before and after a key.
    near: Callable[[sqlite3.Connection, str, Sequence[str]], tuple[list[str], list[str], list[str]]]
    #: The number of records.
    total: Callable[[ReadRow], object]
    #: The number of names under a prefix with a record and no usable entry at a time. Blocks. Raises StoreError.
    count: Callable[[Path, str, float], int]
    #: Deletes the records under a prefix, and returns their number. Blocks. Raises StoreError.
    forget: Callable[[Path, str, float], int]


@dataclass(frozen=True, slots=True)
class Table:
    """The tables of a feature. Its functions raise sqlite3.Error."""

    #: Creates the tables that are missing. Has the time of the opening.
    create: Callable[[sqlite3.Connection, float], None]
    #: Writes in the same transaction, before it is committed. Has the new entries, and the keys whose entry it deleted.
    after_write: Callable[[sqlite3.Connection, Sequence[Entry], Sequence[str]], None] | None = None
    records: Records | None = None


def find_records(tables: Sequence[Table]) -> Records | None:
    """The records of the first table that has some."""
    return next((table.records for table in tables if table.records is not None), None)
