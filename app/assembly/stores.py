"""The kinds of stores, and the tables that features have in a SQLite file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from app.cache import address
from app.features.valkey import opener

if TYPE_CHECKING:
    from app.cache.sqlite.tables import Table

#: What opens the store of a URL, by its scheme.
OPENERS: Final[Mapping[str, address.Opener]] = {**address.OPENERS, **opener.OPENERS}


def read_tables() -> Sequence[Table]:
    """The tables of the features. A process without a SQLite store does not import them."""
    from app.features.follow.sqlite_change_log import CHANGE_LOG  # noqa: PLC0415
    from app.features.follow.sqlite_parents import PARENTS_TABLE  # noqa: PLC0415
    from app.features.registry.store_table import REGISTRY_TABLE  # noqa: PLC0415

    return REGISTRY_TABLE, CHANGE_LOG, PARENTS_TABLE
