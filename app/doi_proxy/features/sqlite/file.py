"""The file of the SQLite store: its schema, opening it, and handling a file that cannot be used."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import pwd
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from doi_proxy.cache.store import StoreLost, StoreUnavailable
from doi_proxy.errors import StoreError
from doi_proxy.store import file
from doi_proxy.store.stored_entry import READERS, STORE_FORMAT, Reader
from doi_proxy.system.files import create_beside, create_file, make_folders, open_beside

log = logging.getLogger(__name__)

#: Seconds that the writing thread waits for the transaction of another process.
WRITE_TIMEOUT: Final = 5.0
#: Attempts to get the lock for opening a store, and the seconds between two.
LOCK_ATTEMPTS: Final = 50
_LOCK_INTERVAL: Final = 0.1
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
DAMAGED: Final = "store-damaged"
#: What an operator can end, by the primary result code of SQLite, and by the number of an error of the system.
_CAUSES: Final = {
    sqlite3.SQLITE_BUSY: "store-locked",
    sqlite3.SQLITE_LOCKED: "store-locked",
    sqlite3.SQLITE_FULL: "store-full",
    sqlite3.SQLITE_READONLY: "store-read-only",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
}
_FILE_CAUSES: Final = {
    errno.ENOSPC: "store-full",
    errno.EDQUOT: "store-full",
    errno.EROFS: "store-read-only",
    errno.EACCES: "store-read-only",
}
#: What the names of the log and of its index end with.
TAILS: Final = ("-wal", "-shm")

#: The times of `entries` are whole seconds since the epoch, without an index: `hand` finds what leaves.
#: `earlier` has the earlier targets of the name. `room` is the bytes that a row takes in the file. Up to 1,002 bytes of
#: it share a page of 4,096, of which a quarter is free. Of a longer row 489 do, and the rest has pages of its own
#: (sqlite.org/fileformat2.html, section 1.6). Measured over 4,000 rows of 100 to 8,000 bytes that come and go: at most
#: 4 % more.
_SCHEMA: Final = """
BEGIN IMMEDIATE;
CREATE TABLE entries (
    key TEXT PRIMARY KEY, stale_until INTEGER NOT NULL, last_used INTEGER NOT NULL, data BLOB NOT NULL, earlier BLOB,
    payload INTEGER AS (12 + length(CAST(key AS BLOB)) + length(data) + ifnull(length(earlier), 0)),
    room INTEGER AS (CASE WHEN payload <= 1002 THEN payload * 4 / 3 ELSE 652 + (payload + 3602) / 4092 * 4096 END)
) WITHOUT ROWID;
CREATE TABLE totals (entries INTEGER NOT NULL, bytes INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0);
CREATE TRIGGER entry_added AFTER INSERT ON entries BEGIN
    UPDATE totals SET entries = entries + 1, bytes = bytes + new.room;
END;
CREATE TRIGGER entry_replaced AFTER UPDATE OF data, earlier ON entries BEGIN
    UPDATE totals SET bytes = bytes + new.room - old.room;
END;
CREATE TRIGGER entry_removed AFTER DELETE ON entries BEGIN
    UPDATE totals SET entries = entries - 1, bytes = bytes - old.room;
END;
CREATE TABLE announcements (number INTEGER PRIMARY KEY, key TEXT NOT NULL);
CREATE TABLE purges (scope TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE hand (id INTEGER PRIMARY KEY CHECK (id = 1), key TEXT NOT NULL);
CREATE TABLE notes (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
"""
#: The tables of every store.
_TABLES: Final = frozenset({"announcements", "entries", "hand", "notes", "purges", "totals"})


def connect(path: Path, *, timeout: float) -> sqlite3.Connection:
    """Open a connection in autocommit mode that waits `timeout` seconds for a lock. Raises sqlite3.Error."""
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    connection.text_factory = file.decode_row_text
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def prepare(
    path: Path,
    now: float,
    create: Callable[[sqlite3.Connection], None] | None = None,
    *,
    readers: Mapping[int, Reader] = READERS,
) -> None:
    """Make sure that `path` is a store of the newest format of `readers`. `create` creates the tables of a feature.

    A store of an older format gets the new number, and its entries are read as they are. A damaged file is renamed to
    `<name>.corrupt-<time>`, with one line in the log, and an empty store is created. Raises StoreError if the path
    cannot be written, or if the file is a store of another format or a database of another program. Such a file is not
    changed.
    """
    with translate_open_errors(path, "for writing"):
        make_folders(path.parent)
        with exclusive_lock(path):
            _require_file(path)
            _refuse_link(path)
            _refuse_tails(path)
            reason = _why_damaged(path, readers)
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
                if file.read_format(connection) == 0:
                    _create(connection)
                if create is not None:
                    create(connection)
                if file.read_format(connection) != max(readers):
                    connection.execute(f"PRAGMA user_version = {max(readers)}")


def _require_file(path: Path) -> None:
    """SQLite says "disk I/O error" of a folder, and waits without end for what a pipe has to read."""
    if path.is_dir():
        raise IsADirectoryError("it is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise OSError("it is not a regular file; delete it, or name another file")


def _refuse_link(path: Path) -> None:
    """SQLite has its log beside the file that a link names, where this program does not look for it."""
    if path.is_symlink():
        raise OSError(f"it is a symbolic link; name {os.path.realpath(path)} itself in store_url")


def _refuse_tails(path: Path) -> None:
    """SQLite refuses a log or an index that is a symbolic link or a folder, and does not say which file it is."""
    for tail in TAILS:
        beside = Path(f"{path}{tail}")
        kind = "a symbolic link" if beside.is_symlink() else "a folder" if beside.is_dir() else ""
        if kind:
            raise StoreUnavailable(f"The store {path} cannot be opened: {beside} is {kind}; delete it.")


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot change anything.

    Raises StoreError, also for a damaged file. The file is not changed.
    """
    with translate_open_errors(path, "for reading"):
        _require_file(path)
        reason = _why_damaged(path)
        if reason is not None:
            raise StoreError(
                f"The store {path} is damaged: {reason}. It was not changed; start doi-proxy with it to rename it and"
                " create an empty store."
            )
        connection = file.connect_to_read(path)
        try:
            if file.read_format(connection) == 0:
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
        obstacle = _find_obstacle(path)
        text = f"The store {path} cannot be opened {purpose}: {error}{obstacle}."
        raise StoreUnavailable(text, cause=find_cause(error) or (obstacle and "store-read-only")) from error
    except ValueError as error:
        raise StoreError(f"The store {path} cannot be opened {purpose}: {error}.") from error


def _find_obstacle(path: Path) -> str:
    """Why this user may not write a file, which SQLite does not say, and what to do. "" if it is something else."""
    with suppress(OSError, KeyError):
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return "; its file system is read-only: mount it for writing"
        if not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
            found, user = path.stat(), pwd.getpwuid(os.geteuid()).pw_name
            mode = stat.S_IMODE(found.st_mode)
            return f"; it belongs to {path.owner()}, mode {mode:04o}, and this user is {user}: chown {user} {path}"
    return ""


def _create(connection: sqlite3.Connection) -> None:
    connection.executescript(_SCHEMA)
    connection.execute(f"PRAGMA application_id = {file.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {STORE_FORMAT}")
    connection.execute("COMMIT")


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


def find_cause(error: BaseException) -> str:
    """Why SQLite or a file failed, as the cause of a StoreError."""
    return _CAUSES.get(_error_code(error)) or _FILE_CAUSES.get(getattr(error, "errno", None) or 0, "")


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


def _why_damaged(path: Path, readers: Mapping[int, Reader] = READERS) -> str | None:
    if not path.exists() or path.stat().st_size == 0:
        return None
    try:
        # If a process was killed while it created the file, a journal remains. Only a writer can roll it back.
        killed = Path(f"{path}-journal").exists()
        with closing(connect(path, timeout=WRITE_TIMEOUT) if killed else file.connect_to_read(path)) as connection:
            reason = _why_unreadable(path, connection, readers)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        reason = str(error)
    return "a process found damage while using it" if reason is None and _mark(path).exists() else reason


def _why_unreadable(path: Path, connection: sqlite3.Connection, readers: Mapping[int, Reader]) -> str | None:
    if not file.has_reader(connection, readers):
        raise StoreError(
            f"The file {path} is a store of another format than {max(readers)}, or a database of another program. It is"
            " not changed; name another file in store_url."
        )
    if file.read_format(connection) and not file.find_tables(connection) >= _TABLES:
        return "tables are missing"
    log_length = _length(Path(f"{path}-wal"))
    length = _length(path)
    if not log_length and length < file.read_pragma(connection, "page_count") * file.read_pragma(
        connection, "page_size"
    ):
        return "its end is missing"
    # Up to this size, a file is checked completely when it is opened (30 ms). Of a larger file, only the header, the
    # schema and the length are checked.
    if length + log_length <= (32 * 1024 * 1024):
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            return str(result.splitlines()[-1])
    return None


def _set_aside(path: Path, now: float) -> Path:
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    # Names to try for a damaged file that is renamed. Even two within a second are unlikely.
    names = [f"{path.name}.corrupt-{stamp}"] + [f"{path.name}.corrupt-{stamp}-{n}" for n in range(1, 100)]
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


class StorePlace:
    """The path of a store, and the files that this process has open there."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """The caller holds file.exclusive_lock. Raises sqlite3.Error and OSError."""
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the log and its index
        self._path = path
        self._opened = {tail: _identify(Path(f"{path}{tail}")) for tail in ("", *TAILS)}
        self._damage = ""

    @property
    def is_lost(self) -> bool:
        """Whether another file is at the path, or none."""
        try:
            return _identify(self._path) != self._opened[""]
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # a folder that cannot be read for a time

    def check(self) -> None:
        """Raise StoreLost if the file was deleted, replaced or damaged. One system call."""
        if self._damage:
            raise StoreLost(
                f"The store {self._path} is damaged: {self._damage}. This process renames it and begins an empty store"
                " with the records of its memory; check the disk.",
                cause=DAMAGED,
            )
        if not self.is_lost:
            return
        try:
            self._remove_tails()
        except TimeoutError:
            return  # another process opens the file that is there now; the next call tries again
        except OSError as error:
            log.debug("The log of the lost store could not be deleted: %s", error)
        if self._path.exists():
            raise StoreLost(
                f"The store {self._path} was replaced while it was open. This process opens the file that is there now;"
                " stop the service before you restore a store.",
                cause="store-replaced",
            )
        raise StoreLost(
            f"The store {self._path} was deleted while it was open. This process creates it with the records of its"
            " memory; stop the service before you delete a store.",
            cause="store-deleted",
        )

    def report_damage(self, error: BaseException) -> None:
        """Mark the file as damaged, so that the next process that opens it renames it."""
        # Another process may have renamed the file of this one. The store that it created is not damaged. Without the
        # lock, the next read finds the damage again.
        with suppress(OSError), exclusive_lock(self._path, waits=False):
            if not self.is_lost:
                mark_damaged(self._path)
                self._damage = str(error)

    def _remove_tails(self) -> None:
        """Delete the log of the lost file and its index. SQLite would apply them to the file that is there now."""
        with exclusive_lock(self._path, waits=False):
            for tail in TAILS:
                log_file = Path(f"{self._path}{tail}")
                if log_file.exists() and _identify(log_file) == self._opened[tail]:
                    log_file.unlink()


def _identify(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
