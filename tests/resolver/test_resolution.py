"""The decisions about a name, which need neither clock nor cache nor upstream."""

from __future__ import annotations

import pytest

from doi_names.name import HandleName
from doi_proxy.cache.entry import Entry
from doi_proxy.resolver.resolution import Origin, Resolution, Step, must_confirm, next_step, refresh_from
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
    ("age", "failed_recently", "popular", "step"),
    [
        (0, False, False, Step.ANSWER),
        (50, False, True, Step.ANSWER),
        (89.9, False, True, Step.ANSWER),
        (90, False, True, Step.ANSWER_AND_REFRESH),
        (99.9, False, True, Step.ANSWER_AND_REFRESH),
        (99.9, False, False, Step.ANSWER),
        (50, True, False, Step.ANSWER),
        (100, False, False, Step.FETCH_WITH_FALLBACK),
        (100, False, True, Step.FETCH_WITH_FALLBACK),
        (100, True, False, Step.ANSWER_STALE),
        (1099.9, True, True, Step.ANSWER_STALE),
        (1099.9, False, False, Step.FETCH_WITH_FALLBACK),
        (1100, False, False, Step.FETCH),
        (1100, True, True, Step.FETCH),
        (-50, False, False, Step.ANSWER),
    ],
)
def test_what_to_do_follows_from_age_and_recent_failure(
    age: float, failed_recently: bool, popular: bool, step: Step
) -> None:
    assert next_step(entry(), FETCHED + age, failed_recently=failed_recently, popular=popular) is step


@pytest.mark.parametrize("failed_recently", [True, False])
@pytest.mark.parametrize("popular", [True, False])
def test_a_name_of_which_nothing_is_known_is_asked(failed_recently: bool, popular: bool) -> None:
    assert next_step(None, FETCHED, failed_recently=failed_recently, popular=popular) is Step.FETCH


@pytest.mark.parametrize("answer", [MISSING, EMPTY])
def test_what_was_missing_is_asked_when_its_time_is_over_and_never_answered_stale(answer: Answer) -> None:
    negative = entry(answer, fresh=60, grace=0)
    assert next_step(negative, FETCHED + 59, failed_recently=True, popular=False) is Step.ANSWER
    assert next_step(negative, FETCHED + 60, failed_recently=True, popular=False) is Step.FETCH


def test_an_entry_without_a_life_is_never_in_its_refresh_window_while_fresh() -> None:
    brief = entry(fresh=0)
    assert not brief.is_fresh(FETCHED)
    assert next_step(brief, FETCHED, failed_recently=False, popular=True) is Step.FETCH_WITH_FALLBACK


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
