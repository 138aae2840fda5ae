"""The registry records of a SQLite store as answers, which no upstream has confirmed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, Final

import msgspec

from doi_proxy.cache.entry import FOREVER, Entry, RegistryEntry
from doi_proxy.cache.memory import MemoryStore
from doi_proxy.cache.store import NearKeys
from doi_proxy.errors import DamagedEntry
from doi_proxy.features.registry import sqlite_blocks
from doi_proxy.features.registry.json_values import RegistryRow
from doi_proxy.features.registry.sqlite_blocks import LAST, SELECT_BLOCK, RegistryTable
from doi_proxy.features.sqlite.file import translate_open_errors
from doi_proxy.features.sqlite.rows import REGISTRY_CHANGED, SELECT_KNOWN, Rows
from doi_proxy.features.sqlite.writer import announce
from doi_proxy.resolver.target import TARGET_RULES
from doi_proxy.store.file import connect_to_read
from doi_proxy.store.stored_entry import RedirectAnswer, holds_target
from handle_protocol.referral import Answer, ResponseCode

if TYPE_CHECKING:
    from doi_proxy.features.sqlite.store import SqliteStore

_TABLE: Final = "registry_blocks"
_TOTAL: Final = "SELECT records FROM registry_total"
_ENTRIES: Final = "SELECT key FROM entries WHERE key >= ? AND key < ? AND stale_until > ? ORDER BY key"
#: The values of a record up to its URL. The TTL of 86,400 after it is the default of the handle system: the record is
#: confirmed before it counts.
_BEFORE_URL: Final = b'[{"index":1,"type":"URL","data":{"format":"string","value":'


class RegistryAnswers:
    """The records of one store. What was read lately is in memory until any process changes a record."""

    def __init__(self, store: SqliteStore, rows: Rows, path: Path, clock: Callable[[], float]) -> None:
        """`clock` gives seconds since the epoch."""
        self._store, self._rows = store, rows
        self._path, self._clock = path, clock
        self._recent = _Recent(clock)

    @staticmethod
    def create(connection: sqlite3.Connection) -> None:
        """See doi_proxy.features.sqlite.rows.Records."""
        sqlite_blocks.create_tables(connection)

    def peek(self, key: str) -> Entry | None:
        """See RegistryRecords."""
        return self._recent.entries.peek(key)

    def find(self, key: str) -> Entry | None:
        """See RegistryRecords. Also raises DamagedEntry."""
        if self._store.is_deleting(key):
            return None
        # What another thread or process changes meanwhile must not come into the memory that follows.
        recent = self._recent
        found = recent.entries.peek(key)
        if found is None and self._rows.has_table(_TABLE):
            try:
                row = self._find_row(recent, key)
            except DamagedEntry:
                self._rows.damaged_entries += 1
                raise
            if row is not None:
                found = to_entry(row)
                recent.entries.admit(found)
        return found

    def read_ahead(self, keys: Sequence[str]) -> None:
        """See RegistryRecords. Names of one block unpack it once."""
        for key in sorted(self._store.find_absent(keys)):
            with suppress(DamagedEntry):
                self.find(key)

    def _find_row(self, recent: _Recent, key: str) -> RegistryRow | None:
        if not recent.lines or key < recent.first or key.encode(errors="surrogatepass") + b"\t" > recent.lines[-1]:
            block = self._rows.row(SELECT_BLOCK, (key,))
            if block is None:
                return None
            if block[0] != recent.first:
                recent.lines = sqlite_blocks.unpack_lines(block[0], block[2])
                recent.first = block[0]
        return sqlite_blocks.find_row(key, recent.lines)

    def forget_recent(self) -> None:
        """Forget what was read: a record has changed. Any thread may call it."""
        self._recent = _Recent(self._clock)

    def follow(self, connection: sqlite3.Connection, entries: Sequence[Entry], deleted: Sequence[str]) -> bool:
        """Delete what a transaction has made void, and announce that. Returns whether there was any.

        A purge deletes the record too, and a "not found" of the upstream wins over what an agency's file says. Raises
        sqlite3.Error.
        """
        absent = [entry.key for entry in entries if entry.answer.code is ResponseCode.HANDLE_NOT_FOUND]
        was_known = sqlite_blocks.delete(connection, [*deleted, *absent]) > 0
        if was_known:
            announce(connection, (REGISTRY_CHANGED,))
        return was_known

    def total(self) -> object:
        """The number of records. Raises StoreError."""
        (records,) = (self._rows.row(_TOTAL) if self._rows.has_table(_TABLE) else None) or (0,)
        return records

    async def forget(self, prefix: str) -> int:
        """See RegistryRecords."""

        def work() -> int:
            with RegistryTable(self._path, now=self._clock()) as table:
                return table.forget_prefix(prefix)

        gone = await self._store.run_apart(work, writes=True)
        self.forget_recent()
        return gone

    async def count(self, prefix: str) -> int:
        """See RegistryRecords."""
        await self._store.flush()
        return await self._store.run_apart(partial(count_registry, self._path, prefix, self._clock()))

    async def find_near(self, key: str, candidates: Sequence[str]) -> NearKeys:
        """See RegistryRecords."""
        return await self._store.run_apart(partial(find_near_keys, self._path, key, candidates))


class _Recent:
    """What was read since a record has changed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        # About 20,000 records.
        self.entries = MemoryStore(16 * 2**20, clock=clock)
        #: The last block: its first key, and its lines. A list in the order of its names reads each block once.
        self.first, self.lines = "", list[bytes]()


def to_entry(row: RegistryRow) -> RegistryEntry:
    """The record as an entry that is never fresh and always usable. It has the values that the file is known to give.

    The timestamp of the URL value is the date of the record. The HS_ADMIN value is not known, so it is left out.
    """
    key, date, agency, url = row
    timestamp = datetime.fromtimestamp(date, UTC).isoformat()[:19] + "Z"
    text = msgspec.json.encode(url)
    values = b'%b%b},"ttl":86400,"timestamp":"%b"}]' % (_BEFORE_URL, text, timestamp.encode())
    start = len(_BEFORE_URL) + 1
    place = TARGET_RULES, start, start + len(url)
    if text[1:-1] == url.encode() and holds_target(values, *place):
        answer: Answer = RedirectAnswer(ResponseCode.SUCCESS, values, start=place[1], end=place[2])
    else:
        answer = Answer(ResponseCode.SUCCESS, values)
    return RegistryEntry(key, answer, float(date), 0.0, FOREVER, intern(agency))


def count_registry(path: Path, prefix: str, now: float) -> int:
    """The number of names under a prefix that have a registry record and no usable entry. `now` is in seconds.

    It blocks the caller's thread. Raises StoreError.
    """
    bounds = (prefix, prefix + LAST)
    with translate_open_errors(path, "for reading"), closing(connect_to_read(path)) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'registry_blocks'").fetchone() is None:
            return 0
        if prefix:
            records = sqlite_blocks.count(connection, prefix)
        else:
            (records,) = connection.execute(_TOTAL).fetchone() or (0,)
        entries, both = connection.execute(_ENTRIES, (*bounds, now)), 0
        # Entries that are compared with the registry records at a time.
        while page := entries.fetchmany(5_000):
            both += sqlite_blocks.count_known(connection, [key for (key,) in page if isinstance(key, str)])
        return max(0, int(records) - both)


def find_near_keys(path: Path, key: str, candidates: Sequence[str]) -> NearKeys:
    """See RegistryRecords. It blocks the caller's thread. Raises StoreError."""
    with translate_open_errors(path, "for reading"), closing(connect_to_read(path)) as connection:
        listed = json.dumps(candidates, ensure_ascii=False)
        known = [known for (known,) in connection.execute(SELECT_KNOWN, (listed,)) if isinstance(known, str)]
        records, before, after = sqlite_blocks.find_near(connection, key, candidates)
        return NearKeys(known, before, after, records)
