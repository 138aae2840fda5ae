"""Counts the names that have a registry record, an entry, or both."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, Self

from app.cache.sqlite.file import connect_to_read, translate_open_errors
from app.features.registry import sqlite_blocks as registry_blocks

#: Keys of one SELECT. The limit of SQLite is 32,766 variables.
_KEYS: Final = 500
#: Entries that are compared with the registry records at a time.
_PAGE: Final = 5_000
#: Without a prefix, the total is known.
_TOTAL: Final = "SELECT records FROM registry_total"
_ENTRIES: Final = "SELECT key FROM entries WHERE key >= ? AND key < ? AND stale_until > ? ORDER BY key"
_RANGE: Final = "SELECT key FROM entries WHERE key >= ? AND key <= ? LIMIT ?"


def count_registry(path: Path, prefix: str, now: float) -> int:
    """The number of names under a prefix that have a registry record and no usable entry. `now` is in seconds.

    It blocks the caller's thread. Raises StoreError.
    """
    bounds = (prefix, prefix + registry_blocks.LAST)
    with translate_open_errors(path, "for reading"), closing(connect_to_read(path)) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'registry_blocks'").fetchone() is None:
            return 0
        if prefix:
            records = registry_blocks.count(connection, prefix)
        else:
            (records,) = connection.execute(_TOTAL).fetchone() or (0,)
        entries, both = connection.execute(_ENTRIES, (*bounds, now)), 0
        while page := entries.fetchmany(_PAGE):
            both += registry_blocks.count_known(connection, [key for (key,) in page if isinstance(key, str)])
        return max(0, int(records) - both)


class EntryCount:
    """Counts which names of an import have an entry."""

    def __init__(self, path: Path) -> None:
        """Open the store at `path`, which exists. Raises StoreError."""
        self._path = path
        with translate_open_errors(path, "for reading"):
            self._connection = connect_to_read(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def count(self, keys: Sequence[str]) -> int:
        """The number of these sorted keys that have an entry. Raises StoreError."""
        with translate_open_errors(self._path, "for reading"):
            found = self._connection.execute(_RANGE, (keys[0], keys[-1], len(keys) + 1)).fetchall()
            # With few entries between the keys, one pass is cheaper than a look-up of each key.
            if len(found) <= len(keys):
                return len({key for (key,) in found} & set(keys))
            return sum(self._count_each(keys[at : at + _KEYS]) for at in range(0, len(keys), _KEYS))

    def _count_each(self, keys: Sequence[str]) -> int:
        places = ", ".join("?" * len(keys))
        select = f"SELECT count(*) FROM entries WHERE key IN ({places})"  # noqa: S608 - placeholders alone
        return int(self._connection.execute(select, keys).fetchone()[0])
