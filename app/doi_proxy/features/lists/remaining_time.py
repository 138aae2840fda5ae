"""How long the rest of a list takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from doi_names.name import fold
from doi_proxy.list_formats.lines import ListItem
from doi_proxy.list_formats.list_stream import ListSource, read_items
from doi_proxy.system.standard_streams import STANDARD_INPUT
from doi_proxy.upstream.guard import UNSENT_OUTCOMES

#: Rows before the remaining time is estimated.
_FIRST_ROWS: Final = 20
#: Distinct names that are counted, about 100 MB. A longer list has no estimate.
MAX_COUNTED: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ListSize:
    """The number of items of the lists, and of distinct ones among them."""

    items: int
    distinct: int


def count_lists(sources: Iterable[ListSource]) -> ListSize | None:
    """Count the items of lists. None if a list cannot be read twice, is too long, or is a document."""
    total, distinct = 0, set[str]()
    for source in sources:
        if source.path == STANDARD_INPUT or source.is_document:
            return None
        for item in read_items(source):
            total += 1
            if isinstance(item, ListItem):
                distinct.add(fold(item.text.strip()))
            if len(distinct) > MAX_COUNTED:
                return None
    return ListSize(total, len(distinct))


@dataclass(frozen=True, slots=True)
class Effort:
    """The rows of a run, at least one, with the seconds and the upstream queries that they took."""

    rows: int
    seconds: float
    queries: int


def estimate_seconds(size: ListSize, left: int, effort: Effort, queries_a_second: float | None) -> float:
    """The remaining time for the `left` last items of a list.

    We assume the rest is as slow as the rows so far, and no faster than the budget. It needs as many queries as the
    rows so far, but at most one for each distinct name.
    """
    pace = left * effort.seconds / effort.rows
    if queries_a_second is None:
        return pace
    queries_left = left * min(size.distinct / size.items, effort.queries / effort.rows)
    return max(pace, queries_left / queries_a_second)


class RemainingTime:
    """Estimates the time that is left for a list, which the upstream queries of this run decide too.

    `queries_a_second` is the rate of the budget, None if this process sends no queries.
    """

    def __init__(self, size: ListSize, queries_a_second: float | None) -> None:
        self.size = size
        self._rate = queries_a_second
        self._queries = 0

    def record_query(self, outcome: str, seconds: float) -> None:
        """See RecordQuery. Only queries that were sent count."""
        if outcome not in UNSENT_OUTCOMES:
            self._queries += 1

    def estimate(self, done: float, left: float, seconds: float) -> float | None:
        """See Estimate."""
        # A list that grew after it was counted has more rows than items.
        if not _FIRST_ROWS <= done <= self.size.items:
            return None
        return estimate_seconds(self.size, int(left), Effort(int(done), seconds, self._queries), self._rate)
