"""Names that the store has from an agency, and that a complete file of this agency does not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from enum import StrEnum

from doi_proxy.features.registry.sqlite_table import RegistryTable
from doi_proxy.features.registry.wire import RegistryRow


class Missing(StrEnum):
    """What happens to names of the store that a complete file of their agency does not have."""

    COUNT = "count"
    FORGET = "forget"


class AbsentNames:
    """Names of the store that the files do not have, although the store has them from the same agency.

    The rows of the import and the records of the store are both in the order of their keys, so one pass is enough.
    """

    def __init__(self, table: RegistryTable, agencies: Set[str], after: str) -> None:
        self._agencies = agencies
        self._pages = table.pages(after=after)
        self._page: list[RegistryRow] = []
        self._at = 0

    def up_to(self, rows: Sequence[RegistryRow]) -> Iterator[str]:
        """The absent keys up to the last of these rows."""
        return self._find({row[0] for row in rows}, rows[-1][0])

    def rest(self) -> Iterator[str]:
        """The absent keys after all rows."""
        return self._find(frozenset(), None)

    def _find(self, present: Set[str], last: str | None) -> Iterator[str]:
        while self._at < len(self._page) or self._refill():
            key, _, agency, _ = self._page[self._at]
            if last is not None and key > last:
                return
            self._at += 1
            if agency in self._agencies and key not in present:
                yield key

    def _refill(self) -> bool:
        self._page, self._at = next((page for page in self._pages if page), []), 0
        return bool(self._page)
