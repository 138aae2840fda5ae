"""Registry records in a store, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from doi_names.name import HandleName
from doi_proxy.features.registry.sqlite_blocks import RegistryTable

#: 2023-11-01, in seconds since the epoch: two weeks before the tests' clock.
FILE_DATE = 1_698_796_800


def write_registry(path: Path, clock: Callable[[], float], records: dict[str, str], *, date: int = FILE_DATE) -> None:
    """Write records, a URL by name, of a file of Crossref."""
    with RegistryTable(path, now=clock()) as table:
        table.write(sorted((HandleName(name).key, date, "Crossref", url) for name, url in records.items()))


def count_registry(path: Path, clock: Callable[[], float]) -> int:
    """The number of registry records in a store."""
    with RegistryTable(path, now=clock()) as table:
        return table.count()
