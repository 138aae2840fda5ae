"""The progress line of `doi-proxy resolve`: counts, pace, and the time that is left."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path

import pytest

from app.features.command import STANDARD_INPUT
from app.features.lists import progress as resolve_progress
from app.features.lists.list_stream import ListSource
from app.features.lists.progress import Effort, ListSize, Progress, count_lists, estimate_seconds
from app.features.lists.verdict import Verdict
from tests.clock import Clock


@pytest.mark.parametrize(
    ("size", "left", "effort", "rate", "seconds"),
    [
        # Rows from the cache: the pace so far decides.
        (ListSize(1_000, 1_000), 900, Effort(100, 2.0, 0), 10.0, 18.0),
        # Every row took a query: the budget decides.
        (ListSize(1_000, 1_000), 900, Effort(100, 2.0, 100), 10.0, 90.0),
        # Half of the rows took a query.
        (ListSize(1_000, 1_000), 900, Effort(100, 2.0, 50), 10.0, 45.0),
        # The burst of the budget made the first rows fast, and names repeat: at most one query for each.
        (ListSize(1_000, 100), 900, Effort(100, 2.0, 100), 10.0, 18.0),
        (ListSize(1_000, 500), 900, Effort(100, 2.0, 100), 10.0, 45.0),
        # A server has a budget of its own: the pace is all that is known.
        (ListSize(1_000, 1_000), 900, Effort(100, 2.0, 100), None, 18.0),
        # No item can be read as text.
        (ListSize(1_000, 0), 900, Effort(100, 2.0, 0), 10.0, 18.0),
        (ListSize(1_000, 1_000), 0, Effort(1_000, 2.0, 1_000), 10.0, 0.0),
    ],
)
def test_the_remaining_time_follows_from_the_pace_and_the_budget(
    size: ListSize, left: int, effort: Effort, rate: float | None, seconds: float
) -> None:
    assert estimate_seconds(size, left, effort, rate) == pytest.approx(seconds)


class Screen:
    """A progress line on a terminal of 200 columns, after a number of rows and seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: ListSize | None, rows_before: int = 0) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        self._stream = io.StringIO()
        monkeypatch.setattr("sys.stderr", self._stream)
        self._clock = Clock()
        self.progress = Progress(size, rows_before, 10.0, self._clock)

    def line(self, rows: int, seconds: float) -> str:
        """What the line says after `rows` rows in all, drawn after `seconds` more seconds."""
        self._clock.advance(seconds)
        self._stream.truncate(self._stream.seek(0))
        self.progress.draw(Counter({Verdict.RESOLVED: rows}))
        return re.sub(r"\r\x1b\[K", "", self._stream.getvalue())


def test_the_line_has_the_rows_the_pace_the_time_left_and_the_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, ListSize(1_000, 1_000))
    for _ in range(100):
        screen.progress.record_query("success", 0.1)
    assert screen.line(100, 5.0) == "100 of 1,000; 20.0 a second; 0:01:30 left; resolved 100"


def test_the_first_rows_have_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Screen(monkeypatch, ListSize(1_000, 1_000)).line(19, 1.0) == "19 of 1,000; 19.0 a second; resolved 19"


def test_a_continued_job_has_the_pace_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, ListSize(1_000, 1_000), rows_before=800)
    assert screen.line(900, 10.0) == "900 of 1,000; 10.0 a second; 0:00:10 left; resolved 900"


def test_lists_of_unknown_size_and_lists_that_grew_have_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Screen(monkeypatch, None).line(100, 5.0) == "100; 20.0 a second; resolved 100"
    assert Screen(monkeypatch, ListSize(0, 0)).line(100, 5.0) == "100 of 0; 20.0 a second; resolved 100"


def test_the_line_is_drawn_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, None)
    assert [bool(screen.line(1, seconds)) for seconds in (0.1, 0.1, 0.1, 0.1)] == [False, False, True, False]


def test_items_and_distinct_names_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "list.txt"
    file.write_text("10.1000/a\n# comment\n\n10.1000/A\n10.1000/b\n", encoding="utf-8")
    source = ListSource(str(file))
    assert count_lists([source, source]) == ListSize(6, 2)
    assert count_lists([ListSource(STANDARD_INPUT)]) is None
    monkeypatch.setattr(resolve_progress, "MAX_COUNTED", 1)
    assert count_lists([source]) is None
