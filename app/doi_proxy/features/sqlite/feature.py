"""The embedded store: one SQLite file, shared by the instances of a machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import Feature

if TYPE_CHECKING:
    from doi_proxy.cache.store import Store
    from doi_proxy.store.file import StoreOptions


def open_file(url: str, options: StoreOptions) -> Store:
    """Open a file: `sqlite:///var/x` is relative to the working directory, `sqlite:////var/x` is an absolute path.

    Raises ConfigurationError for the URL, and StoreError for the file.
    """
    from doi_proxy.features.sqlite.store import SqliteStore
    from doi_proxy.store.file import choose_file

    path, records = choose_file(_file_path(url.partition(":")[2])), options.find_records()
    return SqliteStore(
        path,
        clock=options.clock,
        max_bytes=options.max_bytes,
        find_freed=options.find_freed,
        records=records,
        read_only=options.read_only,
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


class Sqlite(Feature):
    """The stores of `sqlite:` URLs."""

    name = "sqlite"
    summary = "the store in a file, shared by the instances of a machine"
    stores = {"sqlite": open_file}
