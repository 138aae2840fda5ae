"""What the worker processes of one machine agree on: leases and token buckets, in a small SQLite file of their own.

The file is beside the store's, so that no lease ever waits for a batch of records or for a checkpoint: a transaction
here is one row. Nothing in it outlives its use, so it is neither synced to disk nor repaired: a damaged one is removed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from app.cache.buckets import LONGEST_IDLE
from app.cache.private_file import create_beside
from app.cache.sqlite.file import is_damage
from app.token_bucket import Bucket, back_off, take_token

#: How long a worker waits for another one's transaction of some microseconds, in seconds.
_BUSY_TIMEOUT: Final = 0.25
#: Every so many releases, leases and buckets that nobody needs any more are removed.
_TIDY_EVERY: Final = 256

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS leases (key TEXT PRIMARY KEY, owner TEXT NOT NULL, ends REAL NOT NULL);
CREATE TABLE IF NOT EXISTS buckets (
    name TEXT PRIMARY KEY, tokens REAL NOT NULL, at REAL NOT NULL, blocked_until REAL NOT NULL
);
"""


class _DamagedFile(sqlite3.DatabaseError):
    """A check of the file found damage."""


class Coordination:
    """Leases and buckets shared by the processes that open the same file.

    Times, and what a clock gives, are seconds since the epoch.
    """

    def __init__(self, path: Path) -> None:
        """Raises sqlite3.Error, and OSError for a symbolic link. One process at a time is in here: see file.alone."""
        try:
            self._connection = _open(path)
        except sqlite3.DatabaseError as error:
            if not (is_damage(error) or isinstance(error, _DamagedFile)):
                raise
            for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
                with suppress(OSError):
                    name.unlink()
            self._connection = _open(path)
        self._releases = 0

    def lease(self, key: str, owner: str, now: float, seconds: float) -> bool:
        """Whether the lease was free, and is `owner`'s now."""
        taken = self._connection.execute(
            "INSERT INTO leases VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
            # A lease that ends later than a new one would was taken before the clock was set back. Text is greater
            # than any number.
            " SET owner = excluded.owner, ends = excluded.ends"
            " WHERE (leases.ends > ? AND leases.ends <= ?) IS NOT TRUE",
            (key, owner, now + seconds, now, now + seconds),
        )
        return taken.rowcount == 1

    def release(self, key: str, owner: str, now: float) -> None:
        """Give the lease back, if it is `owner`'s."""
        self._connection.execute("DELETE FROM leases WHERE key = ? AND owner = ?", (key, owner))
        self._releases += 1
        if self._releases % _TIDY_EVERY == 0:
            self._connection.execute("DELETE FROM leases WHERE ends <= ?", (now,))
            self._connection.execute(
                "DELETE FROM buckets WHERE at < ? AND blocked_until <= ?", (now - LONGEST_IDLE, now)
            )

    def take(self, name: str, clock: Callable[[], float], rate: float, burst: float, leaving: float) -> float:
        """Take one token and return 0.0, or the seconds until there will be one."""
        with _Transaction(self._connection):
            # Read the clock inside the lock. Read earlier, it could precede another worker's write, and that interval
            # would be credited twice.
            bucket, wait = take_token(self._read(name), clock(), rate, burst, leaving)
            self._write(name, bucket)
        return wait

    def back_off(self, name: str, clock: Callable[[], float], seconds: float) -> None:
        """Empty the bucket, which begins to fill again after `seconds`."""
        with _Transaction(self._connection):
            self._write(name, back_off(self._read(name), clock(), seconds))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _read(self, name: str) -> Bucket | None:
        row = self._connection.execute(
            "SELECT tokens, at, blocked_until FROM buckets WHERE name = ?", (name,)
        ).fetchone()
        # A damaged row may hold any type.
        return None if row is None or not all(isinstance(number, float) for number in row) else Bucket(*row)

    def _write(self, name: str, bucket: Bucket) -> None:
        values = (name, bucket.tokens, bucket.at, bucket.blocked_until)
        self._connection.execute("INSERT OR REPLACE INTO buckets VALUES (?, ?, ?, ?)", values)


class _Transaction:
    """Holds the file's write lock."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        self._connection.execute("COMMIT" if kind is None else "ROLLBACK")


def _open(path: Path) -> sqlite3.Connection:
    create_beside(path)
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(_TABLES)
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise _DamagedFile(verdict)
    except sqlite3.Error:
        connection.close()
        raise
    return connection
