"""Opens the store of a `sqlite:` URL."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from doi_proxy.cache.store import SharedStore
from doi_proxy.errors import ConfigurationError
from doi_proxy.store.url import Opener, StoreOptions


def open_file(url: str, options: StoreOptions) -> SharedStore:
    """Open a file: `sqlite:///var/x` is relative to the working directory, `sqlite:////var/x` is an absolute path.

    Raises ConfigurationError for the URL, and StoreError for the file.
    """
    # Imported only if needed: the library takes tens of milliseconds.
    from doi_proxy.features.sqlite.read_only import ReadOnlySqliteStore  # noqa: PLC0415
    from doi_proxy.features.sqlite.store import SqliteStore  # noqa: PLC0415
    from doi_proxy.store.file import choose_file  # noqa: PLC0415

    path, records = choose_file(_file_path(url.partition(":")[2])), options.find_records()
    if options.read_only:
        return ReadOnlySqliteStore(path, clock=options.clock, records=records)
    return SqliteStore(
        path, clock=options.clock, max_bytes=options.max_bytes, find_freed=options.find_freed, records=records
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


#: What opens a store, by the scheme of its URL.
OPENERS: Final[dict[str, Opener]] = {"sqlite": open_file}
