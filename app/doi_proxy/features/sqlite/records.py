"""Records that answer names without an entry. A feature keeps them in the file of a SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doi_proxy.cache.entry import Entry, RegistryEntry

#: Reads the first row of a query. Raises StoreError.
ReadRow = Callable[[str, tuple[object, ...]], Any]


@dataclass(frozen=True, slots=True)
class Records:
    """The functions of the feature. Those that have a connection raise sqlite3.Error."""

    #: Their table. A file has it after it was opened for writing.
    table: str
    #: Creates the tables that are missing.
    create: Callable[[sqlite3.Connection], None]
    #: Follows what a transaction writes, before it is committed: new entries, and keys whose entry it deleted.
    follow: Callable[[sqlite3.Connection, Sequence[Entry], Sequence[str]], None]
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
