"""The file of the SQLite store: its schema, how it is opened, and what to do with a file that cannot be used."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from app.cache.private_file import create, create_beside, make_folders, open_beside
from app.errors import StoreError

log = logging.getLogger(__name__)

#: PRAGMA application_id: "DOIp".
APPLICATION_ID: Final = 0x444F4970
#: PRAGMA user_version.
SCHEMA_VERSION: Final = 1
#: Bytes of an entry in the file besides its key and data: row and cell headers, three indexes, free space of pages.
#: Measured over 100,000 entries of 1.2 kB and of 300 B: 178 and 126.
ROW_OVERHEAD: Final = 180
#: How long the writing thread waits for another process's transaction, in seconds.
WRITE_TIMEOUT: Final = 5.0
#: How long a read waits for a lock, in seconds. In write-ahead mode a read takes no lock that a writer holds; what is
#: left, such as the recovery after a crash, must not hold the event loop for long.
READ_TIMEOUT: Final = 0.25
#: A file up to this size is checked whole when it is opened (30 ms); a larger one by its head, schema and length.
CHECKED_WHOLE: Final = 32 * 1024 * 1024
#: A write-ahead log that grew in a burst is cut to this size afterwards, in bytes.
_LONGEST_LOG: Final = 64 * 1024 * 1024
#: Names tried for a file that is set aside; two within a second are already odd.
_MOST_ASIDE: Final = 100

_SCHEMA: Final = """
BEGIN IMMEDIATE;
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, stale_until REAL NOT NULL, last_used REAL NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX entries_key ON entries (key);
CREATE INDEX entries_stale_until ON entries (stale_until);
CREATE INDEX entries_last_used ON entries (last_used);
CREATE TABLE totals (entries INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0);
CREATE TRIGGER entry_added AFTER INSERT ON entries BEGIN
    UPDATE totals SET entries = entries + 1, bytes = bytes + length(new.key) + length(new.data);
END;
CREATE TRIGGER entry_replaced AFTER UPDATE OF data ON entries BEGIN
    UPDATE totals SET bytes = bytes + length(new.data) - length(old.data);
END;
CREATE TRIGGER entry_removed AFTER DELETE ON entries BEGIN
    UPDATE totals SET entries = entries - 1, bytes = bytes - length(old.key) - length(old.data);
END;
CREATE TABLE announcements (number INTEGER PRIMARY KEY, key TEXT NOT NULL);
"""


def connect(path: Path, *, timeout: float) -> sqlite3.Connection:
    """A connection to a store's file, which waits `timeout` seconds for a lock; transactions are begun by hand.

    Raises sqlite3.Error.
    """
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    connection.text_factory = _decode
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_LONGEST_LOG}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing. Raises sqlite3.Error.

    Without a write-ahead log no process has the file open, and it counts as unchangeable: otherwise SQLite would
    create a log to read it. `has_log` says when that has changed.
    """
    mode = "ro" if has_log(path) else "ro&immutable=1"
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=READ_TIMEOUT, isolation_level=None, check_same_thread=False)
    connection.text_factory = _decode
    return connection


def has_log(path: Path) -> bool:
    """Whether there is a write-ahead log: a process has the store open, or was killed."""
    return Path(f"{path}-wal").exists()


def _decode(text: bytes) -> str:
    # One damaged key must not fail the whole page it is in; its checksum is wrong anyway.
    return text.decode(errors="replace")


def counted_bytes(entries: int, length: int) -> int:
    """What a store counts as, in bytes: the length of all keys and data, and the overhead of the rows."""
    return length + entries * ROW_OVERHEAD


def prepare(path: Path, now: float) -> None:
    """Make sure that `path` is a store of this schema version.

    A damaged file is set aside first: it becomes `<name>.corrupt-<time>`, with one line in the log. Raises StoreError
    where the path cannot be written. A store of a newer version and a database of another program are left alone:
    StoreError as well.
    """
    with opening(path, "for writing"):
        make_folders(path.parent)
        with alone(path):
            reason = _why_damaged(path)
            if reason is not None:
                aside = _set_aside(path, now)
                log.warning(
                    "The store %s is damaged: %s. It is now %s, and an empty one is started.", path, reason, aside.name
                )
            # SQLite gives its log and its index the permissions of the file.
            create(path)
            with closing(connect(path, timeout=WRITE_TIMEOUT)) as connection:
                if _pragma(connection, "user_version") == 0:
                    _create(connection)


def open_to_read(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing, to a store of this schema version.

    Raises StoreError, also for a damaged file, which is left as it is.
    """
    with opening(path, "for reading"):
        reason = _why_damaged(path)
        if reason is not None:
            raise StoreError(
                f"The store {path} is damaged: {reason}. It was left as it is; a proxy that is started on it sets it"
                " aside and begins an empty one."
            )
        connection = connect_to_read(path)
        try:
            if _pragma(connection, "user_version") == 0:
                raise StoreError(f"The file {path} is not a store of doi-proxy: it is empty.")
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def opening(path: Path, purpose: str) -> Iterator[None]:
    """Make a StoreError of what goes wrong while a store is opened."""
    try:
        yield
    except (OSError, sqlite3.Error, ValueError) as error:
        raise StoreError(f"The store {path} cannot be opened {purpose}: {error}.") from error


def _create(connection: sqlite3.Connection) -> None:
    connection.executescript(_SCHEMA)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def mark_damaged(path: Path) -> None:
    """Note beside the file that it turned out to be damaged, so that it is set aside when it is opened next."""
    with suppress(OSError):
        create_beside(_mark(path))


def is_damage(error: BaseException) -> bool:
    """Whether an error of SQLite means that the file itself is damaged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock under which a store is opened: several worker processes open it at the same moment.

    Raises OSError.
    """
    lock = open_beside(Path(f"{path}.lock"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _why_damaged(path: Path) -> str | None:
    if not path.exists() or path.stat().st_size == 0:
        return None
    try:
        # A journal is left where a process was killed while it created the file; only a writer can roll it back.
        killed = Path(f"{path}-journal").exists()
        with closing(connect(path, timeout=WRITE_TIMEOUT) if killed else connect_to_read(path)) as connection:
            reason = _why_unreadable(path, connection)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        reason = str(error)
    return "it was found damaged" if reason is None and _mark(path).exists() else reason


def _why_unreadable(path: Path, connection: sqlite3.Connection) -> str | None:
    version, application = _pragma(connection, "user_version"), _pragma(connection, "application_id")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if application != APPLICATION_ID and (tables or version):
        raise StoreError(f"The file {path} is a database of another program. Name another file as the store.")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"The store {path} has schema version {version}, and this doi-proxy knows versions up to {SCHEMA_VERSION}."
            " It was left as it is. Start a newer doi-proxy, or name another file as the store."
        )
    if version and not {"entries", "totals", "announcements"} <= tables:
        return "tables are missing"
    log_length = _length(Path(f"{path}-wal"))
    length = _length(path)
    if not log_length and length < _pragma(connection, "page_count") * _pragma(connection, "page_size"):
        return "its end is missing"
    if length + log_length <= CHECKED_WHOLE:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            return str(verdict.splitlines()[-1])
    return None


def _set_aside(path: Path, now: float) -> Path:
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    names = [f"{path.name}.corrupt-{stamp}"] + [f"{path.name}.corrupt-{stamp}-{n}" for n in range(1, _MOST_ASIDE)]
    aside = next(path.with_name(name) for name in names if not path.with_name(name).exists())
    path.rename(aside)
    for tail in ("-wal", "-shm"):
        # The log belongs to the file it was written for; beside a fresh one it would be an error.
        with suppress(FileNotFoundError):
            Path(f"{path}{tail}").rename(f"{aside}{tail}")
    _mark(path).unlink(missing_ok=True)
    return aside


def _mark(path: Path) -> Path:
    return Path(f"{path}.damaged")


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
