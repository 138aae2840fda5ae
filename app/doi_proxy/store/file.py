"""The file of a SQLite store: which one is used, and connections that only read it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from doi_proxy.cache.store import Store
from doi_proxy.errors import ConfigurationError
from doi_proxy.store.stored_entry import READERS, Reader

_SQLITE_FILE: Final = "sqlite:///"


def _find_none() -> None:
    """No feature has records in a file."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store is opened.

    `max_bytes` limits the size of a file, and `timeout` the wait for a server. With `read_only`, the file is not
    changed. `find_records` returns what a feature has in a SQLite file beside the entries. `find_freed` returns by how
    many bytes `max_bytes` is larger now, because the disk has got room since.
    """

    clock: Callable[[], float]
    max_bytes: int
    timeout: float
    read_only: bool = False
    find_records: Callable[[], Any] = _find_none
    find_freed: Callable[[], int] = int


#: Opens the store of a URL. None is a cache with memory alone. Raises ConfigurationError, and StoreError for a file.
Opener = Callable[[str, StoreOptions], Store | None]


def open_store(url: str, options: StoreOptions, openers: Mapping[str, Opener]) -> Store | None:
    """Open the store at `url` by the opener of its scheme. None if there is memory alone.

    Raises ConfigurationError for a URL that cannot be used, and StoreError for a file that cannot be used.
    """
    if url in ("memory:", "memory://"):
        return None
    scheme = url.partition(":")[0]
    if scheme not in openers:
        raise ConfigurationError(
            f"The scheme {scheme[:40]!r} of the store URL is not supported; use memory:, sqlite:///path, or a server"
            " as in docs/valkey.md: valkey://host/0, valkey+unix:///path,"
            " valkey+cluster://host1,host2 or valkey+sentinel://host1,host2/name."
        )
    return openers[scheme](url, options)


def read_store_path(url: str) -> Path | None:
    """The file that a URL of a SQLite store names, None for any other store."""
    return Path(url.removeprefix(_SQLITE_FILE)) if url.startswith(_SQLITE_FILE) else None


def find_store_file(url: str) -> Path | None:
    """The file of a SQLite store that this program uses, None for any other store. See choose_file."""
    path = read_store_path(url)
    with suppress(OSError):
        if path is not None and path.is_file():
            return choose_file(path)
    return path


#: PRAGMA application_id: "DOIr". PRAGMA user_version is the format of the store.
APPLICATION_ID: Final = 0x444F4972
#: Seconds that a read waits for a lock. In write-ahead mode writers do not block reads. The remaining cases, such as
#: recovery after a crash, must not block the event loop for long.
READ_TIMEOUT: Final = 0.25


def choose_file(path: Path, readers: Mapping[int, Reader] = READERS) -> Path:
    """The file of the store at `path`: `path`, or `<path>.<format>` if `path` is a database without a reader.

    That is a store of another format, or a file of another program. It is not changed. A file that cannot be examined
    is returned as it is: what opens it reports the reason.
    """
    try:
        if path.stat().st_size:
            with closing(connect_to_read(path)) as connection:
                if not has_reader(connection, readers):
                    return path.with_name(f"{path.name}.{max(readers)}")
    except (OSError, sqlite3.Error, ValueError):
        pass
    return path


def has_reader(connection: sqlite3.Connection, readers: Mapping[int, Reader]) -> bool:
    """Whether a file is a store in a format with a reader, or an empty database."""
    number, application = read_format(connection), read_pragma(connection, "application_id")
    if application == APPLICATION_ID:
        return number in readers
    return not (application or number or find_tables(connection))


def find_tables(connection: sqlite3.Connection) -> set[str]:
    """The names of its tables. Raises sqlite3.Error."""
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot change anything. Raises sqlite3.Error.

    If there is no write-ahead log, no process has the file open, and it is opened as immutable. SQLite would otherwise
    create a log. `has_log` detects when a process has opened the file since.
    """
    mode = "ro" if has_log(path) else "ro&immutable=1"
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=READ_TIMEOUT, isolation_level=None, check_same_thread=False)
    connection.text_factory = decode_row_text
    return connection


def has_log(path: Path) -> bool:
    """Whether there is a write-ahead log: a process has the store open, or was killed."""
    return Path(f"{path}-wal").exists()


def decode_row_text(text: bytes) -> str:
    """Text of a row. What is not UTF-8 is replaced."""
    # One damaged key must not fail a whole page of rows. Its checksum is wrong, so it is found later.
    return text.decode(errors="replace")


def read_format(connection: sqlite3.Connection) -> int:
    """The format of a store. 0 for an empty file. Raises sqlite3.Error."""
    return read_pragma(connection, "user_version")


def read_pragma(connection: sqlite3.Connection, name: str) -> int:
    """The number of a pragma. Raises sqlite3.Error."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
