"""One transaction of the SQLite store: it writes changes, announcements and times of use, and evicts entries."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil
from typing import Final

from doi_proxy.cache.entry import MAX_SKEW, Entry, loses_proof
from doi_proxy.cache.purges import MAX_PURGES, PURGE_MEMORY, UNKNOWN, Purges
from doi_proxy.cache.store import MAX_ANNOUNCED_BYTES, MAX_ANNOUNCEMENTS
from doi_proxy.errors import DamagedEntry
from doi_proxy.features.sqlite.earlier_targets import add_earlier_target
from doi_proxy.features.sqlite.eviction import evict
from doi_proxy.features.sqlite.records import Records
from doi_proxy.features.sqlite.writer import Change, is_later
from doi_proxy.store.stored_entry import MARK_OFFSET, VERIFIED, pack, unpack

#: Rows of one INSERT. Each step of SQLite releases the interpreter lock and then waits for it, up to 5 ms in a busy
#: process. A few large steps are therefore faster than many small ones.
_ROWS: Final = 64
#: Deletes the oldest ones beyond a number of bytes.
_TRIM: Final = (
    "DELETE FROM announcements WHERE number <= (SELECT max(number) FROM (SELECT number, sum(length(CAST(key AS BLOB)))"
    " OVER (ORDER BY number DESC) AS bytes FROM announcements) WHERE bytes > ?)"
)
#: Verified entries. SQLite counts the bytes of a value from 1. A damaged value that is not bytes is not selected.
_PROOFS: Final = f"SELECT key, data FROM entries WHERE substr(data, {MARK_OFFSET + 1}, 1) >= x'{VERIFIED:02x}'"  # noqa: S608 - numbers


def write_batch(
    connection: sqlite3.Connection,
    changes: list[Change],
    used: dict[str, float],
    *,
    now: float,
    max_bytes: int,
    records: Records | None = None,
) -> None:
    """Write changes and times of use, and evict entries beyond `max_bytes`. After sqlite3.Error nothing is written.

    `records` follow what is written.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read before this batch adds its own: they were recorded after the queries of its entries.
        purges = _read_purges(connection, now)
        gone = [change.key for change in changes if change.entry is None or change.purged_at is not None]
        _delete(connection, gone)
        admitted = [entry for change in changes if (entry := _admit(connection, change, purges, now))]
        proven = _find_proven(connection, admitted, now)
        entries = [entry for entry in admitted if entry.key not in proven]
        _put(connection, entries, now)
        purged = [(change.key, change.purged_at) for change in changes if change.purged_at is not None]
        if records is not None:
            records.follow(connection, entries, gone)
        _record_purges(connection, purged, now)
        announce(connection, [change.key for change in changes if change.announce or change.key in proven])
        connection.executemany(
            "UPDATE entries SET last_used = ? WHERE key = ?", [(int(when), key) for key, when in used.items()]
        )
        if not changes:
            # This changes nothing, and fails if the file cannot be written.
            connection.execute("UPDATE totals SET entries = entries")
        evict(connection, now, _count_size(connection) - max_bytes)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _admit(connection: sqlite3.Connection, change: Change, purges: Purges, now: float) -> Entry | None:
    """The entry of a change, unless a purge or a newer entry forbids it."""
    if change.sent_at is not None and purges.refuses(change.key, change.sent_at, now):
        return None
    if change.unless_newer and is_later(_find_usable(connection, change.key, now), change.entry):
        return None
    return change.entry


def _find_proven(connection: sqlite3.Connection, entries: list[Entry], now: float) -> frozenset[str]:
    """The keys of the entries that are not written, because they are not verified and a fresh verified one is there."""
    unverified, proven = {entry.key: entry for entry in entries if not entry.answer.is_verified}, set()
    keys = list(unverified)
    for at in range(0, len(keys), _ROWS):
        part = keys[at : at + _ROWS]
        rows = connection.execute(f"{_PROOFS} AND key IN ({', '.join('?' * len(part))})", part)
        proven |= {key for key, data in rows if loses_proof(_read_usable(key, data, now), unverified[key], now)}
    return frozenset(proven)


def _find_usable(connection: sqlite3.Connection, key: str, now: float) -> Entry | None:
    row = connection.execute("SELECT data FROM entries WHERE key = ?", (key,)).fetchone()
    return None if row is None else _read_usable(key, row[0], now)


def _read_usable(key: str, data: object, now: float) -> Entry | None:
    try:
        entry = unpack(key, data)
    except DamagedEntry:
        return None
    # An entry from the future was written before the clock was set back.
    usable = entry is not None and entry.is_usable(now) and entry.fetched_at <= now + MAX_SKEW
    return entry if usable else None


def _read_purges(connection: sqlite3.Connection, now: float) -> Purges:
    purges = Purges()
    for scope, at in connection.execute(
        "SELECT scope, at FROM purges WHERE at > ? AND at <= ? LIMIT ?", (now - PURGE_MEMORY, now, MAX_PURGES)
    ):
        # A damaged row can have values of any type.
        if isinstance(scope, str) and isinstance(at, float):
            purges.record(scope, at)
    return purges


def _record_purges(connection: sqlite3.Connection, purged: list[tuple[str, float]], now: float) -> None:
    if not purged:
        return
    connection.execute("DELETE FROM purges WHERE at <= ? OR at > ?", (now - PURGE_MEMORY, now))
    connection.executemany("INSERT OR REPLACE INTO purges VALUES (?, ?)", purged)
    (count,) = connection.execute("SELECT count(*) FROM purges").fetchone()
    if count > MAX_PURGES:
        connection.execute("DELETE FROM purges")
        connection.execute("INSERT INTO purges VALUES (?, ?)", (UNKNOWN, now))


def _put(connection: sqlite3.Connection, entries: list[Entry], now: float) -> None:
    for at in range(0, len(entries), _ROWS):
        part = entries[at : at + _ROWS]
        # The hard expiry is rounded up: an entry must not leave before it.
        values = [value for e in part for value in (e.key, ceil(e.stale_until), int(now), *_write_data(connection, e))]
        connection.execute(_upsert(len(part)), values)


def _write_data(connection: sqlite3.Connection, entry: Entry) -> tuple[bytes, bytes | None]:
    """The columns `data` and `earlier` of an entry."""
    row = connection.execute("SELECT data, earlier FROM entries WHERE key = ?", (entry.key,)).fetchone()
    return pack(entry), None if row is None else add_earlier_target(entry, *row)


@lru_cache(maxsize=_ROWS)
def _upsert(rows: int) -> str:
    places = ", ".join(["(?, ?, ?, ?, ?)"] * rows)
    return (
        f"INSERT INTO entries (key, stale_until, last_used, data, earlier) VALUES {places}"  # noqa: S608 - placeholders alone
        " ON CONFLICT (key) DO UPDATE"
        " SET stale_until = excluded.stale_until, last_used = excluded.last_used, data = excluded.data,"
        " earlier = excluded.earlier"
    )


def _delete(connection: sqlite3.Connection, keys: Iterable[str]) -> None:
    connection.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in keys])


def announce(connection: sqlite3.Connection, keys: Sequence[str]) -> None:
    """Announce changes to other processes, in the transaction under way."""
    if not keys:
        return
    connection.executemany("INSERT INTO announcements (key) VALUES (?)", [(key,) for key in keys])
    connection.execute(
        "DELETE FROM announcements WHERE number <= (SELECT max(number) FROM announcements) - ?", (MAX_ANNOUNCEMENTS,)
    )
    # Shorter names cause no trim. They add as many bytes at most as the last trim kept.
    if any(len(key.encode()) > MAX_ANNOUNCED_BYTES // MAX_ANNOUNCEMENTS for key in keys):
        connection.execute(_TRIM, (MAX_ANNOUNCED_BYTES,))


def _count_size(connection: sqlite3.Connection) -> int:
    entries, size = connection.execute("SELECT entries, bytes FROM totals").fetchone() or ("", "")
    ((pages,), (page_size,)) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    # The rows cannot take much more than the file. The room of a row is an average, hence the margin.
    if isinstance(entries, int) and isinstance(size, int) and entries >= 0 and 0 <= size <= 4 * pages * page_size:
        return size
    # Totals that are damaged would stop every write, or empty the store. So they are counted again.
    entries, size = connection.execute("SELECT count(*), coalesce(sum(room), 0) FROM entries").fetchone()
    connection.execute("DELETE FROM totals")
    connection.execute("INSERT INTO totals VALUES (?, ?)", (entries, size))
    return int(size)
