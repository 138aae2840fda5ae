"""The timeout that the names of a batch share while the upstream accepts no queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from doi_proxy.errors import (
    BreakerOpen,
    BudgetSpent,
    CouldNotVerify,
    InvalidAnswer,
    NotCached,
    NotInBundle,
    PrefixDenied,
)
from doi_proxy.features.lists import batch
from doi_proxy.features.lists.batch import Effort, ListSize, RemainingTime, UpstreamWait, count_lists, estimate_seconds
from doi_proxy.list_formats.body import ListSource
from doi_proxy.resolver.resolution import Origin
from doi_proxy.system.files import STANDARD_INPUT


def test_all_names_share_the_timeout_from_the_first_failure() -> None:
    wait = UpstreamWait(60.0)
    assert wait.record_failure(BudgetSpent(), 100.0, 110.0) == 50.0
    assert wait.record_failure(BudgetSpent(), 140.0, 150.0) == 10.0
    assert wait.record_failure(BreakerOpen(), 155.0, 170.0) == 0.0


@pytest.mark.parametrize("origin", [Origin.ASKED, Origin.JOINED, Origin.RENEWED, Origin.BYPASSED])
def test_an_answer_of_the_upstream_ends_the_outage(origin: Origin) -> None:
    wait = UpstreamWait(60.0)
    wait.record_failure(BreakerOpen(), 0.0, 0.0)
    wait.record_answer(origin)
    assert wait.record_failure(BreakerOpen(), 1_000.0, 1_000.0) == 60.0


@pytest.mark.parametrize("origin", [Origin.HIT, Origin.STALE, Origin.LOCAL])
def test_an_answer_without_a_query_does_not(origin: Origin) -> None:
    wait = UpstreamWait(60.0)
    wait.record_failure(BreakerOpen(), 0.0, 0.0)
    wait.record_answer(origin)
    assert wait.record_failure(BreakerOpen(), 1_000.0, 1_000.0) == 0.0


def test_a_failure_of_one_name_shows_that_the_upstream_works() -> None:
    wait = UpstreamWait(60.0)
    wait.record_failure(BudgetSpent(), 0.0, 0.0)
    assert wait.record_failure(InvalidAnswer(), 900.0, 1_000.0) == 0.0
    assert wait.record_failure(BudgetSpent(), 1_000.0, 1_000.0) == 60.0


def test_the_probe_of_an_open_breaker_that_fails_for_its_name_does_not() -> None:
    wait = UpstreamWait(60.0)
    wait.record_failure(BreakerOpen(), 0.0, 0.0)
    assert wait.record_failure(InvalidAnswer(), 15.0, 15.0) == 0.0
    assert wait.record_failure(BreakerOpen(), 16.0, 16.0) == 44.0
    wait.record_answer(Origin.ASKED)
    assert wait.record_failure(InvalidAnswer(), 20.0, 20.0) == 0.0
    assert wait.record_failure(BreakerOpen(), 100.0, 100.0) == 60.0


@pytest.mark.parametrize("error", [NotCached(), NotInBundle(), PrefixDenied("For tests.")])
def test_a_failure_without_an_attempt_begins_no_outage(error: CouldNotVerify) -> None:
    wait = UpstreamWait(60.0)
    assert wait.record_failure(error, 0.0, 0.0) == 0.0
    assert wait.record_failure(BreakerOpen(), 1_000.0, 1_000.0) == 60.0


# --- The progress of `doi-proxy resolve`: the time that is left ------------------------------------------------------


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


def test_the_first_rows_and_a_list_that_grew_have_no_estimate() -> None:
    time_left = RemainingTime(ListSize(1_000, 1_000), 10.0)
    assert time_left.estimate(19, 981, 1.0) is None
    assert RemainingTime(ListSize(0, 0), 10.0).estimate(100, 0, 5.0) is None
    assert time_left.estimate(100, 900, 5.0) == 45.0
    for _ in range(100):
        time_left.record_query("success", 0.1)
    assert time_left.estimate(100, 900, 5.0) == 90.0


def test_items_and_distinct_names_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "list.txt"
    file.write_bytes(b"10.1000/a\n# comment\n\n10.1000/A\n10.1000/b\n" + b"x" * 70_000 + b"\n")
    source = ListSource(str(file))
    monkeypatch.setattr(batch, "MAX_COUNTED", 2)
    assert count_lists([source, source]) == ListSize(8, 2), "an item that cannot be read has a row, and no name"
    assert count_lists([ListSource(STANDARD_INPUT)]) is None
    monkeypatch.setattr(batch, "MAX_COUNTED", 1)
    assert count_lists([source]) is None
