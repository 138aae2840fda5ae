"""The data files of registration agencies, imported into a SQLite store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from app.features.feature import Extra, Feature

if TYPE_CHECKING:
    from app.cache.sqlite.tables import Table


def _tables() -> Sequence[Table]:
    """The table of registry records, and the log of changes, which every writer of a file keeps."""
    from app.features.registry.sqlite_change_log import CHANGE_LOG  # noqa: PLC0415 - only SQLite stores need it
    from app.features.registry.store_table import REGISTRY_TABLE  # noqa: PLC0415 - only SQLite stores need it

    return REGISTRY_TABLE, CHANGE_LOG


FEATURE: Final = Feature(
    "registry",
    "the data files of registration agencies, imported into a SQLite store",
    # The import of such a file needs it. Tables of names and URLs, and records of a store, are read without it.
    extra=Extra("registry", ("isal",)),
    is_on=lambda settings: False,
    tables=_tables,
)
