"""Opens the store of a URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from doi_proxy.cache.store import Store
from doi_proxy.errors import ConfigurationError

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
            from doi_proxy.store.file import choose_file  # noqa: PLC0415 - other stores need none of it

            return choose_file(path)
    return path
