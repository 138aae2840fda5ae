"""The leases and token buckets that the worker processes of one machine share, in a small SQLite file of their own.

In a file of its own, a lease never waits for a batch of records or for a checkpoint: a transaction is one row. The data
is short-lived, so the file is neither synced to disk nor repaired. A damaged file is replaced.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from doi_proxy.cache.coordination import MAX_IDLE
from doi_proxy.features.sqlite.file import is_damage
from doi_proxy.rationing.token_bucket import Bucket
from doi_proxy.system.files import create_beside

#: Seconds that a worker waits for the transaction of another worker, which takes microseconds.
_BUSY_TIMEOUT: Final = 0.25
#: Releases between two deletions of expired leases and unused buckets.
_TIDY_EVERY: Final = 256
#: Pages of the log after which it is copied into the file, which waits for no disk.
_LOG_PAGES: Final = 64

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS leases (key TEXT PRIMARY KEY, owner TEXT NOT NULL, ends REAL NOT NULL);
CREATE TABLE IF NOT EXISTS buckets (
    name TEXT PRIMARY KEY, tokens REAL NOT NULL, at REAL NOT NULL, blocked_until REAL NOT NULL
);
"""


class _DamagedFile(sqlite3.DatabaseError):
    """SQLite's check of the file found damage."""


class CoordinationFile:
    """Leases and buckets shared by the processes that open the same file.

    All times are seconds of the machine's monotonic clock. It begins anew when the machine starts, which counts as a
    clock that was set back.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. The caller holds file.exclusive_lock. Raises sqlite3.Error; OSError for a symbolic link."""
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
        """Take the lease for `owner`. Returns False if another owner has it."""
        change = self._connection.execute(
            "INSERT INTO leases VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE"
            # One that ends much later than a new one would is replaced; see Store. So is text in a damaged row, which
            # compares greater than any number.
            " SET owner = excluded.owner, ends = excluded.ends"
            " WHERE (leases.ends > ? AND leases.ends <= ?) IS NOT TRUE",
            (key, owner, now + seconds, now, now + 2 * seconds),
        )
        return change.rowcount == 1

    def renew(self, key: str, owner: str, now: float, seconds: float) -> None:
        """Let the lease end after `seconds` if `owner` has it."""
        self._connection.execute("UPDATE leases SET ends = ? WHERE key = ? AND owner = ?", (now + seconds, key, owner))

    def release(self, key: str, owner: str, now: float) -> None:
        """Release the lease if `owner` has it."""
        self._connection.execute("DELETE FROM leases WHERE key = ? AND owner = ?", (key, owner))
        self._releases += 1
        if self._releases % _TIDY_EVERY == 0:
            self._connection.execute("DELETE FROM leases WHERE ends <= ?", (now,))
            self._connection.execute("DELETE FROM buckets WHERE at < ? AND blocked_until <= ?", (now - MAX_IDLE, now))

    def change_bucket(
        self, name: str, clock: Callable[[], float], change: Callable[[Bucket | None, float], tuple[Bucket, float]]
    ) -> float:
        """Replace a bucket by the one that `change` makes of it at the time of the clock. Returns its other result."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            # Read the clock inside the lock. Read earlier, it could precede another worker's write, and that interval
            # would be credited twice.
            bucket, wait = change(self._read(name), clock())
            self._write(name, bucket)
        return wait

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _read(self, name: str) -> Bucket | None:
        row = self._connection.execute(
            "SELECT tokens, at, blocked_until FROM buckets WHERE name = ?", (name,)
        ).fetchone()
        # A damaged row can have values of any type.
        return None if row is None or not all(isinstance(number, float) for number in row) else Bucket(*row)

    def _write(self, name: str, bucket: Bucket) -> None:
        values = (name, bucket.tokens, bucket.at, bucket.blocked_until)
        self._connection.execute("INSERT OR REPLACE INTO buckets VALUES (?, ?, ?, ?)", values)


def _open(path: Path) -> sqlite3.Connection:
    create_beside(path)
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        connection.executescript(_TABLES)
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise _DamagedFile(result)
    except sqlite3.Error:
        connection.close()
        raise
    return connection
