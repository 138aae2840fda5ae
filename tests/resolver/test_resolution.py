"""The decisions about a name, which need neither clock nor cache nor upstream."""

from __future__ import annotations

import pytest

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.resolver.resolution import (
    ORDINARY,
    Conditions,
    Origin,
    Resolution,
    Step,
    must_confirm,
    next_step,
    refresh_from,
)
from handle_protocol.referral import Answer, ResponseCode
from tests.table import table

FETCHED = 1000.0
VALUES = b'[{"index":1,"type":"URL","data":{"format":"string","value":"http://example.org/"},"ttl":100}]'
FOUND = Answer(ResponseCode.SUCCESS, VALUES)
MISSING = Answer(ResponseCode.HANDLE_NOT_FOUND)
EMPTY = Answer(ResponseCode.VALUES_NOT_FOUND)


def entry(answer: Answer = FOUND, *, fresh: float = 100, grace: float = 1000) -> Entry:
    """An entry of FETCHED that is fresh for so many seconds."""
    return Entry("X", answer, FETCHED, FETCHED + fresh, FETCHED + fresh + grace)


@table(
    ("age", "has_failed", "step"),
    [
        (0, False, Step.ANSWER),
        (99.9, False, Step.ANSWER),
        (50, True, Step.ANSWER),
        (100, False, Step.FETCH_WITH_FALLBACK),
        (100, True, Step.ANSWER_STALE),
        (1099.9, True, Step.ANSWER_STALE),
        (1099.9, False, Step.FETCH_WITH_FALLBACK),
        (1100, False, Step.FETCH),
        (1100, True, Step.FETCH),
        (-50, False, Step.ANSWER),
    ],
)
def test_what_to_do_follows_from_age_and_recent_failure(age: float, has_failed: bool, step: Step) -> None:
    assert next_step(entry(), FETCHED + age, ORDINARY, has_failed=has_failed) is step


@table(
    ("age", "conditions", "has_failed", "step"),
    [
        (50, Conditions(max_age=50), False, Step.ANSWER),
        (51, Conditions(max_age=50), False, Step.RENEW),
        (51, Conditions(max_age=50), True, Step.ANSWER),
        (150, Conditions(max_stale=50), False, Step.ANSWER_STALE),
        (151, Conditions(max_stale=50), False, Step.FETCH_WITH_FALLBACK),
        (150, Conditions(stale_if_error=50), True, Step.ANSWER_STALE),
        (151, Conditions(stale_if_error=50), True, Step.FETCH),
        (151, Conditions(stale_if_error=50, max_stale=60), True, Step.ANSWER_STALE),
    ],
)
def test_a_request_may_want_a_younger_record_or_accept_an_older_one(
    age: float, conditions: Conditions, has_failed: bool, step: Step
) -> None:
    assert next_step(entry(), FETCHED + age, conditions, has_failed=has_failed) is step


@pytest.mark.parametrize("has_failed", [True, False])
def test_a_name_of_which_nothing_is_known_is_asked(has_failed: bool) -> None:
    assert next_step(None, FETCHED, ORDINARY, has_failed=has_failed) is Step.FETCH


@pytest.mark.parametrize("answer", [MISSING, EMPTY])
def test_what_was_missing_is_asked_when_its_time_is_over_and_never_answered_stale(answer: Answer) -> None:
    negative = entry(answer, fresh=60, grace=0)
    assert next_step(negative, FETCHED + 59, ORDINARY, has_failed=True) is Step.ANSWER
    assert next_step(negative, FETCHED + 60, ORDINARY, has_failed=True) is Step.FETCH


def test_an_entry_without_a_life_is_never_in_its_refresh_window_while_fresh() -> None:
    brief = entry(fresh=0)
    assert not brief.is_fresh(FETCHED)
    assert next_step(brief, FETCHED, ORDINARY, has_failed=False) is Step.FETCH_WITH_FALLBACK


@pytest.mark.parametrize(("fresh", "begins"), [(100, 1090), (10, 1009), (86400, 1000 + 77760)])
def test_the_refresh_window_is_the_last_tenth_of_a_life(fresh: float, begins: float) -> None:
    one = entry(fresh=fresh)
    assert refresh_from(one) == begins
    assert [now >= refresh_from(one) for now in (begins - 0.1, begins)] == [False, True]


@pytest.mark.parametrize(
    ("known", "fresh", "age", "confirms"),
    [
        (FOUND, MISSING, 50, True),
        (FOUND, MISSING, 150, True),
        (FOUND, MISSING, 1099, True),
        (FOUND, MISSING, 1100, False),
        (EMPTY, MISSING, 50, True),
        (MISSING, MISSING, 50, False),
        (FOUND, FOUND, 50, False),
        (MISSING, FOUND, 50, False),
        (None, MISSING, 50, False),
    ],
)
def test_not_found_is_doubted_while_a_record_is_known(
    known: Answer | None, fresh: Answer, age: float, confirms: bool
) -> None:
    before = None if known is None else entry(known)
    assert must_confirm(before, entry(fresh), FETCHED + age) is confirms


@pytest.mark.parametrize(("answer", "found", "values"), [(FOUND, True, 1), (EMPTY, True, 0), (MISSING, False, 0)])
def test_a_name_without_values_is_registered_all_the_same(answer: Answer, found: bool, values: int) -> None:
    resolution = Resolution(HandleName("X"), entry(answer), Origin.HIT)
    assert (resolution.is_registered, len(resolution.record.values)) == (found, values)
