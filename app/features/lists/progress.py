"""Shows how far a list has come."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from app.doi.name import fold
from app.features.command import STANDARD_INPUT
from app.features.lists.lines import ListItem
from app.features.lists.list_stream import ListSource, read_items
from app.features.lists.verdict import Verdict
from app.system.progress import ProgressLine, show_duration
from app.upstream.guard import UNSENT_OUTCOMES

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
    """Count the items of lists. None if a list cannot be read twice, or is too long."""
    total, distinct = 0, set[str]()
    for source in sources:
        if source.path == STANDARD_INPUT:
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

    They are neither faster than the rows before them nor faster than the budget. They need as many queries as the rows
    before them, but at most one for each distinct name.
    """
    pace = left * effort.seconds / effort.rows
    if queries_a_second is None:
        return pace
    queries_left = left * min(size.distinct / size.items, effort.queries / effort.rows)
    return max(pace, queries_left / queries_a_second)


class Progress:
    """The line of a job. `rows_before` are the rows of earlier runs; `clock` is monotonic."""

    def __init__(
        self,
        size: ListSize | None,
        rows_before: int,
        queries_a_second: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._size = size
        self._rows_before = rows_before
        self._rate = queries_a_second
        self._progress_line = ProgressLine(clock)
        self._queries = 0

    def record_query(self, outcome: str, seconds: float) -> None:
        """See RecordQuery. Only queries that were sent count."""
        if outcome not in UNSENT_OUTCOMES:
            self._queries += 1

    def draw(self, verdicts: Counter[Verdict]) -> None:
        """Draw the line if it is time."""
        self._progress_line.draw(lambda seconds: self._line(verdicts, seconds))

    def clear(self) -> None:
        """Remove the line."""
        self._progress_line.clear()

    def _line(self, verdicts: Counter[Verdict], seconds: float) -> str:
        rows = verdicts.total()
        new = rows - self._rows_before
        parts = [f"{rows:,}" if self._size is None else f"{rows:,} of {self._size.items:,}"]
        parts.append(f"{new / seconds:,.1f} a second" if seconds else "")
        # A list that grew after it was counted has more rows than items.
        if self._size is not None and _FIRST_ROWS <= new <= self._size.items:
            effort = Effort(new, seconds, self._queries)
            left = max(0, self._size.items - rows)
            parts.append(f"{show_duration(estimate_seconds(self._size, left, effort, self._rate))} left")
        return "; ".join(filter(None, [*parts, show_verdicts(verdicts)]))


def report_rows(verdicts: Counter[Verdict], others: int = 0) -> None:
    """Print how many rows have which verdict, and how many names lead to another work."""
    count = verdicts.total()
    rows = "1 row" if count == 1 else f"{count:,} rows"
    end = f"; another work {others:,}" if others else ""
    print(f"{rows}: {show_verdicts(verdicts) or 'the lists are empty'}{end}", file=sys.stderr)


def show_verdicts(verdicts: Counter[Verdict]) -> str:
    """The counts of the verdicts that occur, in the order of the vocabulary."""
    return ", ".join(f"{verdict.value} {verdicts[verdict]:,}" for verdict in Verdict if verdicts[verdict])
