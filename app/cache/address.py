"""Opens the store of a URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.cache.store import SharedStore
from app.errors import ConfigurationError

if TYPE_CHECKING:
    from app.cache.sqlite.tables import Table

_SQLITE_FILE: Final = "sqlite:///"


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store is opened.

    `max_bytes` limits the size of a file, and `timeout` the wait for a server. With `read_only`, the file and the
    format of a server are not changed. `tables` returns those that features have in a SQLite file.
    """

    clock: Callable[[], float]
    max_bytes: int
    timeout: float
    read_only: bool = False
    tables: Callable[[], Sequence[Table]] = tuple


#: Opens the store of a URL. None is a cache with memory alone. Raises ConfigurationError, and StoreError for a file.
Opener = Callable[[str, StoreOptions], SharedStore | None]


def open_store(url: str, options: StoreOptions, openers: Mapping[str, Opener]) -> SharedStore | None:
    """Open the store at `url` by the opener of its scheme. None if there is memory alone.

    Raises ConfigurationError for a URL that cannot be used, and StoreError for a file that cannot be used.
    """
    scheme = url.partition(":")[0]
    if scheme not in openers:
        raise _refuse(scheme)
    return openers[scheme](url, options)


def _open_memory(url: str, _: StoreOptions) -> None:
    if url not in ("memory:", "memory://"):
        raise _refuse("memory")


def _open_sqlite(url: str, options: StoreOptions) -> SharedStore:
    """`sqlite:///var/x` is a file relative to the working directory, `sqlite:////var/x` an absolute path."""
    # Imported only if needed: the library takes tens of milliseconds.
    from app.cache.sqlite.read_only import ReadOnlySqliteStore  # noqa: PLC0415
    from app.cache.sqlite.store import SqliteStore  # noqa: PLC0415

    path, tables = _file_path(url.partition(":")[2]), options.tables()
    if options.read_only:
        return ReadOnlySqliteStore(path, clock=options.clock, tables=tables)
    return SqliteStore(path, clock=options.clock, max_bytes=options.max_bytes, tables=tables)


#: The openers of the core, by scheme.
OPENERS: Final[dict[str, Opener]] = {"memory": _open_memory, "sqlite": _open_sqlite}


def _refuse(scheme: str) -> ConfigurationError:
    return ConfigurationError(
        f"The scheme {scheme[:40]!r} of the store URL is not supported; use memory:, sqlite:///path, or a server"
        " as in docs/valkey.md: valkey://host/0, valkey+unix:///path,"
        " valkey+cluster://host1,host2 or valkey+sentinel://host1,host2/name."
    )


def _file_path(rest: str) -> Path:
    path = rest.removeprefix("///")
    if path == rest or not path or path.endswith("/") or "\0" in path:
        raise ConfigurationError(
            "The SQLite store URL has no file path; use sqlite:///relative/file or sqlite:////absolute/file."
        )
    if path == ":memory:":
        raise ConfigurationError('The SQLite store URL has the path ":memory:"; use memory: for a cache in memory.')
    return Path(path)


def read_store_path(url: str) -> Path | None:
    """The file of a SQLite store, None for any other store."""
    return Path(url.removeprefix(_SQLITE_FILE)) if url.startswith(_SQLITE_FILE) else None
