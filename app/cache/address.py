"""Opens the cache for a store URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from app.cache.memory import MemoryStore
from app.cache.store import SharedStore
from app.cache.tiered import TieredStore, TierObserver
from app.errors import ConfigurationError

#: What the scheme of a server's URL begins with.
_SERVER: Final = ("redis", "valkey")
_SQLITE_FILE: Final = "sqlite:///"


def open_store(
    url: str,
    *,
    clock: Callable[[], float],
    memory_bytes: int,
    store_bytes: int,
    timeout: float,
    ceiling: float,
    observer: TierObserver | None = None,
    read_only: bool = False,
    only_verified: bool = False,
) -> TieredStore:
    """Open the memory tier and the store at `url`.

    `memory:` has no store. `sqlite:///var/x` is a file relative to the working directory, `sqlite:////var/x` an
    absolute path. The module `url` of the feature valkey reads the URLs of servers. `store_bytes` limits the size of a
    file, `timeout` the wait for a server, and `ceiling` how long a record is fresh, in seconds. With `read_only`, the
    file and the format of a server are not changed. For `only_verified` see TieredStore. Raises ConfigurationError for
    any other URL, and StoreError for a file that cannot be used.
    """
    store = _second_tier(url, clock, store_bytes, timeout, read_only=read_only)
    memory = MemoryStore(memory_bytes, clock=clock)
    return TieredStore(memory, store, clock=clock, ceiling=ceiling, observer=observer, only_verified=only_verified)


def _second_tier(
    url: str, clock: Callable[[], float], store_bytes: int, timeout: float, *, read_only: bool
) -> SharedStore | None:
    scheme, colon, rest = url.partition(":")
    if scheme + colon == "memory:" and rest in ("", "//"):
        return None
    if scheme == "sqlite":
        # Imported only if needed: each of the libraries takes tens of milliseconds.
        from app.cache.sqlite.read_only import ReadOnlySqliteStore  # noqa: PLC0415
        from app.cache.sqlite.store import SqliteStore  # noqa: PLC0415

        if read_only:
            return ReadOnlySqliteStore(_file_path(rest), clock=clock)
        return SqliteStore(_file_path(rest), clock=clock, max_bytes=store_bytes)
    if scheme.startswith(_SERVER):
        from app.features.valkey.url import SCHEMES  # noqa: PLC0415

        if scheme in SCHEMES:
            return _server(url, clock, timeout, read_only=read_only)
    raise ConfigurationError(
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


def _server(url: str, clock: Callable[[], float], timeout: float, *, read_only: bool) -> SharedStore:
    from app.features.valkey.store import ValkeyStore  # noqa: PLC0415

    # The URL may contain a password, so it is not part of a message.
    try:
        return ValkeyStore(url, clock=clock, timeout=timeout, read_only=read_only)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"The store URL is invalid: {error}; see docs/valkey.md.") from error


def read_store_path(url: str) -> Path | None:
    """The file of a SQLite store, None for any other store."""
    return Path(url.removeprefix(_SQLITE_FILE)) if url.startswith(_SQLITE_FILE) else None
