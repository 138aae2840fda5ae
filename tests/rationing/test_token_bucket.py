"""The arithmetic of a token bucket."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_proxy.rationing import MAX_BACK_OFF, Bucket, back_off, count_tokens, take_token
from doi_proxy.upstream.source import MAX_SECONDS

NOW = 1_700_000_000.0


def take_many(bucket: Bucket | None, now: float, rate: float, burst: float, times: int) -> list[float]:
    """The results of `times` takes at one moment."""
    waits = []
    for _ in range(times):
        bucket, wait = take_token(bucket, now, rate, burst)
        waits.append(wait)
    return waits


def test_a_bucket_starts_full() -> None:
    assert take_many(None, NOW, 2, 2, 4) == [0.0, 0.0, 0.5, 0.5]


def test_a_bucket_gains_its_rate_up_to_its_burst() -> None:
    empty = Bucket(0.0, NOW)
    assert [count_tokens(empty, NOW + seconds, 2, 5) for seconds in (0, 1, 2, 3_600)] == [0.0, 2.0, 4.0, 5.0]


def test_a_token_is_taken_only_if_the_others_remain() -> None:
    assert take_token(Bucket(3.0, NOW), NOW, 1, 5, 2)[1] == 0.0
    assert take_token(Bucket(2.0, NOW), NOW, 1, 5, 2)[1] == 1.0


def test_a_bucket_need_not_leave_more_than_it_can_hold() -> None:
    assert take_token(None, NOW, 1, 5, 50)[1] == 0.0


def test_a_bucket_without_a_rate_never_fills_again() -> None:
    assert take_many(None, NOW, 0, 1, 2) == [0.0, inf]


def test_a_bucket_is_empty_at_the_end_of_a_back_off_and_then_gains_its_rate() -> None:
    bucket = back_off(Bucket(50.0, NOW), NOW, 30)
    assert take_token(bucket, NOW, 1, 50)[1] == 31.0
    assert [count_tokens(bucket, NOW + seconds, 1, 50) for seconds in (0, 29, 30, 32)] == [0.0, 0.0, 0.0, 2.0]


def test_a_question_during_a_back_off_changes_nothing() -> None:
    bucket, wait = take_token(back_off(None, NOW, 30), NOW + 10, 1, 50)
    assert wait == 21.0
    assert take_token(bucket, NOW + 20, 1, 50)[1] == 11.0


def test_a_shorter_back_off_does_not_end_a_longer_one() -> None:
    bucket = back_off(back_off(back_off(None, NOW, 100), NOW, 1), NOW + 10, 0)
    assert take_token(bucket, NOW + 10, 1, 5)[1] == 91.0


def test_a_back_off_is_as_long_as_the_longest_retry_after_that_is_obeyed() -> None:
    assert MAX_BACK_OFF == MAX_SECONDS
    assert take_token(back_off(None, NOW, inf), NOW, 1, 5)[1] == MAX_BACK_OFF + 1


@pytest.mark.parametrize("until", [NOW + MAX_BACK_OFF, NOW + 1e6, 1e13, inf])
def test_a_back_off_until_far_in_the_future_counts_as_the_longest_one_from_now(until: float) -> None:
    bucket, wait = take_token(Bucket(5.0, NOW, until), NOW, 1, 5)
    assert wait == MAX_BACK_OFF + 1
    assert take_token(bucket, NOW + MAX_BACK_OFF + 1, 1, 5)[1] == 0.0


def test_a_clock_that_was_set_back_gives_no_tokens_and_takes_none_away() -> None:
    bucket, wait = take_token(Bucket(0.0, NOW), NOW - 3_600, 1, 1)
    assert wait == 1.0
    assert take_token(bucket, NOW - 3_599, 1, 1)[1] == 0.0
    assert take_token(Bucket(1.0, NOW), NOW - 3_600, 1, 1)[1] == 0.0


def test_a_back_off_goes_on_as_long_as_it_would_have_after_the_clock_was_set_back() -> None:
    bucket = back_off(None, NOW, 30)
    assert take_token(bucket, NOW - 172_800, 1, 5)[1] == 31.0
    assert take_token(back_off(bucket, NOW - 172_800, 5), NOW - 172_800, 1, 5)[1] == 31.0


numbers = st.sampled_from([nan, inf, -inf, 1e13, -1e13, 0.0, NOW, NOW + 30, NOW - 30]) | st.floats()


@given(numbers, numbers, numbers, st.floats(0.1, 100), st.integers(1, 50))
def test_a_bucket_of_any_numbers_gives_a_bounded_wait_and_a_sound_bucket(
    tokens: float, at: float, until: float, rate: float, burst: int
) -> None:
    bucket, wait = take_token(Bucket(tokens, at, until), NOW, rate, burst)
    assert 0 <= wait <= MAX_BACK_OFF + burst / rate + 1e-6
    assert -1e-6 <= bucket.tokens <= burst
    assert bucket.at == NOW
    assert NOW <= bucket.blocked_until <= NOW + MAX_BACK_OFF


@given(
    st.floats(0.1, 1000),
    st.integers(1, 50),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 60)), max_size=100),
)
def test_no_bucket_gives_more_than_burst_and_rate_allow(
    rate: float, burst: int, steps: list[tuple[float, float]]
) -> None:
    bucket, now, taken = None, 0.0, 0
    for seconds, leaving in steps:
        now += seconds
        bucket, wait = take_token(bucket, now, rate, burst, leaving)
        taken += wait == 0
        assert taken <= burst + rate * now + 1e-3
        assert wait >= 0


@given(st.floats(0.1, 1000), st.integers(1, 50), st.floats(0, 100))
def test_after_the_wait_there_is_a_token(rate: float, burst: int, leaving: float) -> None:
    bucket, wait = take_token(None, 0.0, rate, burst, leaving)
    while not wait:
        bucket, wait = take_token(bucket, 0.0, rate, burst, leaving)
    assert take_token(bucket, wait, rate, burst, leaving)[1] == 0
