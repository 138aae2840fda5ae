"""The kinds of stores, and the tables that features have in a SQLite file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from app.assembly.features import installed
from app.cache import address

if TYPE_CHECKING:
    from app.cache.sqlite.tables import Table


def openers() -> Mapping[str, address.Opener]:
    """What opens the store of a URL, by its scheme."""
    return {**address.OPENERS, **{scheme: opener for one in installed() for scheme, opener in one.stores.items()}}


def read_tables() -> Sequence[Table]:
    """The tables of the features. A process without a SQLite store does not import them."""
    return [table for feature in installed() if feature.tables is not None for table in feature.tables()]
