"""One transaction of the SQLite store: it writes changes, announcements and times of use, and evicts entries."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from app.cache.coordination import MAX_ANNOUNCEMENTS
from app.cache.entry import Entry
from app.cache.sqlite.file import ROW_OVERHEAD, total_bytes
from app.cache.sqlite.writer import Change
from app.cache.wire import pack

#: Rows of one INSERT. Each step of SQLite releases the interpreter lock and then waits for it, up to 5 ms in a busy
#: process. A few large steps are therefore faster than many small ones.
_ROWS: Final = 64
#: Expired rows that are deleted in one transaction.
_MAX_EXPIRED: Final = 1_000
#: Least recently used rows that are read in one step of eviction, and steps in one transaction.
_OLDEST: Final = 256
_MAX_STEPS: Final = 8


def write_batch(
    connection: sqlite3.Connection, changes: list[Change], used: dict[str, float], *, now: float, max_bytes: int
) -> None:
    """Write changes and times of use, and evict entries beyond `max_bytes`. After sqlite3.Error nothing is written."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        _put(connection, [change.entry for change in changes if change.entry is not None], now)
        _delete(connection, [change.key for change in changes if change.entry is None])
        _announce(connection, [change.key for change in changes if change.announce])
        connection.executemany(
            "UPDATE entries SET last_used = ? WHERE key = ?", [(when, key) for key, when in used.items()]
        )
        _make_room(connection, now, max_bytes)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _put(connection: sqlite3.Connection, entries: list[Entry], now: float) -> None:
    for at in range(0, len(entries), _ROWS):
        part = entries[at : at + _ROWS]
        values = [value for e in part for value in (e.key, e.stale_until, now, pack(e))]
        connection.execute(_upsert(len(part)), values)


@lru_cache(maxsize=_ROWS)
def _upsert(rows: int) -> str:
    places = ", ".join(["(?, ?, ?, ?)"] * rows)
    return (
        f"INSERT INTO entries (key, stale_until, last_used, data) VALUES {places}"  # noqa: S608 - placeholders alone
        " ON CONFLICT (key) DO UPDATE"
        " SET stale_until = excluded.stale_until, last_used = excluded.last_used, data = excluded.data"
    )


def _delete(connection: sqlite3.Connection, keys: Iterable[str]) -> None:
    connection.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in keys])


def _announce(connection: sqlite3.Connection, keys: list[str]) -> None:
    if not keys:
        return
    connection.executemany("INSERT INTO announcements (key) VALUES (?)", [(key,) for key in keys])
    connection.execute(
        "DELETE FROM announcements WHERE number <= (SELECT max(number) FROM announcements) - ?", (MAX_ANNOUNCEMENTS,)
    )


def _make_room(connection: sqlite3.Connection, now: float, max_bytes: int) -> None:
    connection.execute(
        "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE stale_until <= ? LIMIT ?)", (now, _MAX_EXPIRED)
    )
    size = _count_size(connection)
    for _ in range(_MAX_STEPS):
        if size <= max_bytes:
            return
        oldest = connection.execute(
            "SELECT id, length(key) + length(data) FROM entries ORDER BY last_used, id LIMIT ?", (_OLDEST,)
        ).fetchall()
        leaving = []
        for row, length in oldest:
            if size <= max_bytes:
                break
            leaving.append((row,))
            size -= (length or 0) + ROW_OVERHEAD
        connection.executemany("DELETE FROM entries WHERE id = ?", leaving)


def _count_size(connection: sqlite3.Connection) -> int:
    entries, length = connection.execute("SELECT entries, bytes FROM totals").fetchone() or ("", "")
    ((pages,), (page_size,)) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    if isinstance(entries, int) and isinstance(length, int) and entries >= 0 and length >= 0:
        size = total_bytes(entries, length)
        # The rows cannot take much more than the file. ROW_OVERHEAD is an average, hence the margin.
        if size <= 4 * pages * page_size:
            return size
    # Totals that are damaged would stop every write, or empty the store. So they are counted again.
    entries, length = connection.execute(
        "SELECT count(*), coalesce(sum(length(key) + length(data)), 0) FROM entries"
    ).fetchone()
    connection.execute("DELETE FROM totals")
    connection.execute("INSERT INTO totals VALUES (?, ?)", (entries, length))
    return total_bytes(entries, length)
