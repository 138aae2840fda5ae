"""The registry records as a table of the SQLite store, which answers names without an entry from them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from doi_proxy.cache.entry import Entry, RegistryEntry
from doi_proxy.features.registry import sqlite_blocks as blocks
from doi_proxy.features.registry.sqlite_table import RegistryTable
from doi_proxy.features.registry.wire import find_row, to_entry
from doi_proxy.features.sqlite.file import translate_open_errors
from doi_proxy.features.sqlite.records import ReadRow, Records
from doi_proxy.store.file import connect_to_read
from handle_protocol.answer import ResponseCode

#: Entries that are compared with the registry records at a time.
_PAGE: Final = 5_000
_TOTAL: Final = "SELECT records FROM registry_total"
_ENTRIES: Final = "SELECT key FROM entries WHERE key >= ? AND key < ? AND stale_until > ? ORDER BY key"


def _delete_answered(connection: sqlite3.Connection, entries: Sequence[Entry], deleted: Sequence[str]) -> None:
    """A purge deletes the record too, and a "not found" of the upstream wins over what an agency's file says."""
    absent = [entry.key for entry in entries if entry.answer.code is ResponseCode.HANDLE_NOT_FOUND]
    blocks.delete(connection, [*deleted, *absent])


def _find(read: ReadRow, key: str) -> RegistryEntry | None:
    block = read(blocks.SELECT_BLOCK, (key,))
    if block is None:
        return None
    first, _, data = block
    row = find_row(key, first, data)
    return None if row is None else to_entry(row)


def _count_all(read: ReadRow) -> object:
    (records,) = read(_TOTAL, ()) or (0,)
    return records


def _forget(path: Path, prefix: str, now: float) -> int:
    with RegistryTable(path, now=now) as table:
        return table.forget_prefix(prefix)


def count_registry(path: Path, prefix: str, now: float) -> int:
    """The number of names under a prefix that have a registry record and no usable entry. `now` is in seconds.

    It blocks the caller's thread. Raises StoreError.
    """
    bounds = (prefix, prefix + blocks.LAST)
    with translate_open_errors(path, "for reading"), closing(connect_to_read(path)) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'registry_blocks'").fetchone() is None:
            return 0
        if prefix:
            records = blocks.count(connection, prefix)
        else:
            (records,) = connection.execute(_TOTAL).fetchone() or (0,)
        entries, both = connection.execute(_ENTRIES, (*bounds, now)), 0
        while page := entries.fetchmany(_PAGE):
            both += blocks.count_known(connection, [key for (key,) in page if isinstance(key, str)])
        return max(0, int(records) - both)


RECORDS: Final = Records(
    "registry_blocks",
    blocks.create_tables,
    _delete_answered,
    _find,
    blocks.find_near,
    _count_all,
    count_registry,
    _forget,
)
