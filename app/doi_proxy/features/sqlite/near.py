"""Finds many keys of a SQLite file at once, in a thread and on a connection of its own."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Final

from doi_proxy.cache.store import NearKeys
from doi_proxy.errors import StoreError
from doi_proxy.features.sqlite.file import find_cause
from doi_proxy.features.sqlite.records import Records
from doi_proxy.store.file import connect_to_read

_KNOWN: Final = "SELECT key FROM entries WHERE key IN (SELECT value FROM json_each(?))"


class NearSearch:
    """One search at a time. The connection is opened by the first."""

    def __init__(self, path: Path, records: Records | None) -> None:
        self._path = path
        self._records = records
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None

    def find(self, key: str, candidates: Sequence[str]) -> NearKeys:
        """See SearchableStore. Blocks. Raises StoreError."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = connect_to_read(self._path)
                listed = json.dumps(candidates, ensure_ascii=False)
                known = [
                    known_key
                    for (known_key,) in self._connection.execute(_KNOWN, (listed,))
                    if isinstance(known_key, str)
                ]
                if self._records is None:
                    return NearKeys(known)
                records, before, after = self._records.near(self._connection, key, candidates)
                return NearKeys(known, before, after, records)
            except (sqlite3.Error, OSError, ValueError) as error:
                self._close()
                text = f"The names near {key!r} could not be read from {self._path}: {error}."
                raise StoreError(text, cause=find_cause(error)) from error

    def close(self) -> None:
        """Close the connection, after a search that is under way."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
