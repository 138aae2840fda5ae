"""The timeout that the names of a batch share while the upstream accepts no queries."""

from __future__ import annotations

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
from doi_proxy.features.lists.batch import UpstreamWait
from doi_proxy.resolver.resolution import Origin


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
