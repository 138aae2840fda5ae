"""The names whose last question failed."""

from __future__ import annotations

import tracemalloc

import pytest

from doi_proxy.errors import (
    BreakerOpen,
    BudgetSpent,
    CouldNotVerify,
    InvalidAnswer,
    PlacesFull,
    ResourcesShort,
    UpstreamRefused,
    UpstreamSlow,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from doi_proxy.resolver.fetcher import ENTRY_BYTES, FailureMemory
from tests.table import table

TTL, MOST = 15.0, 60.0


def memory(max_bytes: int = 1_000_000) -> FailureMemory:
    return FailureMemory(ttl=TTL, most=MOST, max_bytes=max_bytes)


def seconds_refused(error: CouldNotVerify) -> float | None:
    failures = memory()
    failures.remember("N", error, 100)
    refusal = failures.find_refusal("N", 100)
    return None if refusal is None else refusal.retry_after


@table(
    ("error", "seconds"),
    [
        (InvalidAnswer(), 15),
        (UpstreamRefused(upstream_status=403), 15),
        (UpstreamRefused(upstream_status=302), 15),
        (UpstreamRefused(upstream_status=403, retry_after=5), 15),
        (UpstreamRefused(upstream_status=403, retry_after=30), 30),
        (UpstreamRefused(upstream_status=403, retry_after=3600), 60),
        (UpstreamRefused(upstream_status=500, response_code=2), 15),
        (UpstreamRefused(upstream_status=500), None),
        (UpstreamRefused(upstream_status=500, retry_after=3600), 60),
        # These concern the whole upstream, which has a pause of its own.
        (UpstreamRefused(upstream_status=429, retry_after=30), None),
        (UpstreamRefused(upstream_status=503, retry_after=30), None),
        (UpstreamTimeout(), None),
        (UpstreamUnreachable(), None),
    ],
)
def test_a_failure_of_a_name_is_answered_for_a_short_while(error: CouldNotVerify, seconds: float | None) -> None:
    assert seconds_refused(error) == seconds


def test_a_refusal_says_how_long_it_lasts_and_ends() -> None:
    failures = memory()
    failures.remember("N", InvalidAnswer("It is HTML."), 100)
    refusal = failures.find_refusal("N", 110)
    assert type(refusal) is InvalidAnswer
    assert (refusal.message, refusal.retry_after) == ("It is HTML.", 5)
    assert failures.find_refusal("N", 115) is None
    assert failures.find_refusal("M", 110) is None


def test_a_clock_that_was_set_back_ends_it() -> None:
    failures = memory()
    failures.remember("N", InvalidAnswer(), 100)
    assert failures.find_refusal("N", 99) is None
    assert failures.find_recent("N", 99, 30) is None


def test_any_failure_is_recent_for_as_long_as_is_asked() -> None:
    failures = memory()
    failures.remember("N", UpstreamTimeout(), 100)
    assert type(failures.find_recent("N", 129, 30)) is UpstreamTimeout
    assert failures.find_recent("N", 130, 30) is None


@table(
    ("error", "at", "is_current"),
    [
        (BreakerOpen(), 100.9, True),
        (UpstreamTimeout(), 100.9, True),
        (UpstreamTimeout(), 101.0, False),
        (InvalidAnswer(), 115.3, True),
        (InvalidAnswer(), 115.4, False),
        # The next request waits for its turn, in which this process or another one can learn the answer.
        (BudgetSpent(), 100.4, False),
        (PlacesFull(), 100.4, False),
        (UpstreamSlow(), 100.4, False),
        (ResourcesShort(), 100.4, False),
    ],
)
def test_a_failure_of_the_upstream_is_current_for_the_rest_of_its_second(
    error: CouldNotVerify, at: float, is_current: bool
) -> None:
    failures = memory()
    failures.remember("N", error, 100.4)
    assert (failures.find_current("N", at) is not None) is is_current


def test_an_answer_forgets_it() -> None:
    failures = memory()
    failures.remember("N", InvalidAnswer(), 100)
    failures.forget("N")
    failures.forget("N")
    assert (failures.find_refusal("N", 100), len(failures), failures.bytes) == (None, 0, 0)


def test_it_is_bounded_in_bytes_and_drops_the_oldest() -> None:
    failures = memory(max_bytes=10 * (ENTRY_BYTES + 4))
    for number in range(1000, 1020):
        failures.remember(str(number), InvalidAnswer(), 100)
    failures.remember("1015", InvalidAnswer(), 101)
    assert len(failures) == 10
    assert failures.find_refusal("1009", 101) is None
    assert failures.find_refusal("1010", 101) is not None
    failures.remember("long" * 10_000, InvalidAnswer(), 102)
    assert (len(failures), failures.find_refusal("long" * 10_000, 102)) == (10, None)


@pytest.mark.parametrize("character", ["x", "ä", "\U0001d400"])
def test_the_bytes_it_counts_are_no_less_than_it_takes(character: str) -> None:
    failures = memory(max_bytes=500_000)
    tracemalloc.start()
    try:
        for number in range(2_500):
            try:
                raise UpstreamRefused("It refused." + str(number), upstream_status=403, detail="x" * 50)
            except UpstreamRefused as error:
                failures.remember(f"10.5555/{number}{character * 200}", error, 100)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert failures.bytes <= 500_000
    assert taken <= failures.bytes + 75_000
