"""The file of the SQLite store: its schema, opening it, and handling a file that cannot be used."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from app.cache.store import StoreUnavailable
from app.errors import StoreError
from app.features.private_file import create_beside, create_file, make_folders, open_beside
from app.features.sqlite.feature_tables import Table
from app.features.store_format import OLD_ENTRIES_UP_TO, STORE_FORMAT, refuse_newer

log = logging.getLogger(__name__)

#: PRAGMA application_id of formats 1 and 2: "DOIp".
_FIRST_APPLICATION_ID: Final = 0x444F4970
#: PRAGMA application_id: "DOIq". PRAGMA user_version is the format. Release 0.1.0 would rename a store of another
#: user_version as if it were damaged, and begin an empty one. It refuses another application, and so does 0.2.0.
APPLICATION_ID: Final = 0x444F4971
#: Bytes of an entry in the file besides its key and data: row and cell headers, two times, free space in pages.
#: Measured over 50,000 entries in random order: 48 B each with 152 B of key and data, 37 B each with 100 B.
ROW_OVERHEAD: Final = 48
#: Seconds that the writing thread waits for the transaction of another process.
WRITE_TIMEOUT: Final = 5.0
#: Seconds that a read waits for a lock. In write-ahead mode writers do not block reads. The remaining cases, such as
#: recovery after a crash, must not block the event loop for long.
READ_TIMEOUT: Final = 0.25
#: Attempts to get the lock for opening a store, and the seconds between two.
LOCK_ATTEMPTS: Final = 50
_LOCK_INTERVAL: Final = 0.1
#: Up to this size, a file is checked completely when it is opened (30 ms). Of a larger file, only the header, the
#: schema and the length are checked.
FULL_CHECK_BYTES: Final = 32 * 1024 * 1024
#: A write-ahead log that grew in a burst is truncated to this size afterwards, in bytes.
_MAX_LOG_BYTES: Final = 64 * 1024 * 1024
#: Primary result codes of SQLite that say nothing about the change itself (sqlite.org, rescode.html).
_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
    }
)
#: What the names of the log and of its index end with.
TAILS: Final = ("-wal", "-shm")
#: Names to try for a damaged file that is renamed. Even two within a second are unlikely.
_MAX_ASIDE: Final = 100

#: The times of `entries` are whole seconds since the epoch, without an index: `hand` finds what leaves (eviction.py).
#: In format 1, each entry had a row number, a second tree for the key and one for each time, which took more room than
#: the data. Such a table stays as it is and is used by the same statements; its entries are rewritten (upgrade.py).
_SCHEMA: Final = """
BEGIN IMMEDIATE;
CREATE TABLE entries (
    key TEXT PRIMARY KEY, stale_until INTEGER NOT NULL, last_used INTEGER NOT NULL, data BLOB NOT NULL
) WITHOUT ROWID;
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
#: Added to a store of an earlier release when it is opened for writing. `rewriting` has a row while entries of an
#: earlier release are rewritten: the last key, and counts.
_LATER_TABLES: Final = """
CREATE TABLE IF NOT EXISTS purges (scope TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS hand (id INTEGER PRIMARY KEY CHECK (id = 1), key TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rewriting (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    place TEXT NOT NULL, visited INTEGER NOT NULL, rewritten INTEGER NOT NULL, unreadable INTEGER NOT NULL
);
"""


def connect(path: Path, *, timeout: float) -> sqlite3.Connection:
    """Open a connection in autocommit mode that waits `timeout` seconds for a lock. Raises sqlite3.Error."""
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    connection.text_factory = _decode
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot change anything. Raises sqlite3.Error.

    If there is no write-ahead log, no process has the file open, and it is opened as immutable. SQLite would otherwise
    create a log. `has_log` detects when a process has opened the file since.
    """
    mode = "ro" if has_log(path) else "ro&immutable=1"
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=READ_TIMEOUT, isolation_level=None, check_same_thread=False)
    connection.text_factory = _decode
    return connection


def has_log(path: Path) -> bool:
    """Whether there is a write-ahead log: a process has the store open, or was killed."""
    return Path(f"{path}-wal").exists()


def _decode(text: bytes) -> str:
    # One damaged key must not fail a whole page of rows. Its checksum is wrong, so it is found later.
    return text.decode(errors="replace")


def total_bytes(entries: int, length: int) -> int:
    """The size of a store, in bytes: the length of all keys and data, and the overhead of the rows."""
    return length + entries * ROW_OVERHEAD


def prepare(path: Path, now: float, tables: Sequence[Table] = ()) -> None:
    """Make sure that `path` is a store of this release's format, with the tables of features.

    A store of an earlier release becomes one. Its entries stay as they are and are read; `rewrite_page` rewrites them
    later. A damaged file is renamed to `<name>.corrupt-<time>`, with one line in the log, and an empty store is
    created. Raises StoreError if the path cannot be written, or if the file is a store of a newer format or a database
    of another program. Such a file is not changed.
    """
    with translate_open_errors(path, "for writing"):
        make_folders(path.parent)
        with exclusive_lock(path):
            _refuse_folder(path)
            _refuse_links(path)
            reason = _why_damaged(path)
            if reason is not None:
                aside = _set_aside(path, now)
                log.warning(
                    "The store %s is damaged: %s. It was renamed to %s, and an empty store was created.",
                    path,
                    reason,
                    aside.name,
                )
            # SQLite creates its log and its index with the permissions of the file.
            create_file(path)
            with closing(connect(path, timeout=WRITE_TIMEOUT)) as connection:
                found = read_format(connection)
                if found == 0:
                    _create(connection)
                connection.executescript(_LATER_TABLES)
                for table in tables:
                    table.create(connection, now)
                if 0 < found < STORE_FORMAT:
                    _upgrade(connection, found)


def _refuse_folder(path: Path) -> None:
    """SQLite says "disk I/O error" of a folder."""
    if path.is_dir():
        raise IsADirectoryError("it is a folder; name a file in it")


def _refuse_links(path: Path) -> None:
    """SQLite refuses a log or an index that is a symbolic link, and does not say which file it is."""
    for tail in TAILS:
        if Path(f"{path}{tail}").is_symlink():
            raise StoreUnavailable(f"The store {path} cannot be opened: {path}{tail} is a symbolic link; delete it.")


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot change anything, to a store of this release or an earlier one.

    Raises StoreError, also for a damaged file. The file is not changed.
    """
    with translate_open_errors(path, "for reading"):
        _refuse_folder(path)
        reason = _why_damaged(path)
        if reason is not None:
            raise StoreError(
                f"The store {path} is damaged: {reason}. It was not changed; start doi-proxy with it to rename it and"
                " create an empty store."
            )
        connection = connect_to_read(path)
        try:
            if read_format(connection) == 0:
                raise StoreError(f"The file {path} is not a store of doi-proxy: it is empty; check the path.")
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def translate_open_errors(path: Path, purpose: str) -> Iterator[None]:
    """Translate the errors of opening a store to StoreUnavailable, and to StoreError for a wrong path."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise StoreUnavailable(f"The store {path} cannot be opened {purpose}: {error}.") from error
    except ValueError as error:
        raise StoreError(f"The store {path} cannot be opened {purpose}: {error}.") from error


def _create(connection: sqlite3.Connection) -> None:
    connection.executescript(_SCHEMA)
    _write_format(connection)
    connection.execute("COMMIT")


def _upgrade(connection: sqlite3.Connection, found: int) -> None:
    """Make a store of an earlier format one of this format. From now on, an earlier release refuses it."""
    connection.execute("BEGIN IMMEDIATE")
    if found <= OLD_ENTRIES_UP_TO:
        connection.execute("INSERT OR IGNORE INTO rewriting VALUES (1, '', 0, 0, 0)")
    _write_format(connection)
    connection.execute("COMMIT")


def _write_format(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {STORE_FORMAT}")


def read_format(connection: sqlite3.Connection) -> int:
    """The format of a store. 0 for an empty file. Raises sqlite3.Error."""
    return _pragma(connection, "user_version")


def mark_damaged(path: Path) -> None:
    """Create a mark beside a damaged file. The next process that opens the file then renames it."""
    with suppress(OSError):
        create_beside(_mark(path))


def is_damage(error: BaseException) -> bool:
    """Whether an error of SQLite reports damage of the file itself."""
    return _error_code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def can_pass(error: BaseException) -> bool:
    """Whether an error of SQLite can pass by itself: a disk that is full or read-only, or the lock of a process."""
    return _error_code(error) in _PASSING


def _error_code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


@contextmanager
def exclusive_lock(path: Path, *, waits: bool = True) -> Iterator[None]:
    """Hold the lock for opening a store, because several processes start at the same time.

    Raises OSError, also if another process holds the lock at the last attempt, or now if the caller does not wait.
    """
    attempts = LOCK_ATTEMPTS if waits else 1
    lock = open_beside(Path(f"{path}.lock"))
    try:
        for attempt in range(1, attempts + 1):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if attempt == attempts:
                    raise TimeoutError(
                        f"another process is opening it and does not finish; `fuser {path}.lock` names it"
                    ) from error
                time.sleep(_LOCK_INTERVAL)
        yield
    finally:
        os.close(lock)


def _why_damaged(path: Path) -> str | None:
    if not path.exists() or path.stat().st_size == 0:
        return None
    try:
        # If a process was killed while it created the file, a journal remains. Only a writer can roll it back.
        killed = Path(f"{path}-journal").exists()
        with closing(connect(path, timeout=WRITE_TIMEOUT) if killed else connect_to_read(path)) as connection:
            reason = _why_unreadable(path, connection)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        reason = str(error)
    return "a process found damage while using it" if reason is None and _mark(path).exists() else reason


def _why_unreadable(path: Path, connection: sqlite3.Connection) -> str | None:
    version, application = read_format(connection), _pragma(connection, "application_id")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if application not in (APPLICATION_ID, _FIRST_APPLICATION_ID) and (tables or version):
        raise StoreError(f"The file {path} is a database of another program; choose another file as the store.")
    refuse_newer(str(path), version)
    if version and not {"entries", "totals", "announcements"} <= tables:
        return "tables are missing"
    log_length = _length(Path(f"{path}-wal"))
    length = _length(path)
    if not log_length and length < _pragma(connection, "page_count") * _pragma(connection, "page_size"):
        return "its end is missing"
    if length + log_length <= FULL_CHECK_BYTES:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            return str(result.splitlines()[-1])
    return None


def _set_aside(path: Path, now: float) -> Path:
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    names = [f"{path.name}.corrupt-{stamp}"] + [f"{path.name}.corrupt-{stamp}-{n}" for n in range(1, _MAX_ASIDE)]
    aside = next(path.with_name(name) for name in names if not path.with_name(name).exists())
    path.rename(aside)
    for tail in TAILS:
        # The log belongs to the damaged file. SQLite must not apply it to the new one.
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
