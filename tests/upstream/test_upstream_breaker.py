"""The circuit breaker."""

from __future__ import annotations

import pytest

from doi_proxy.upstream.guard import Breaker, BreakerState, Pause
from tests.table import table


def opened(at: float = 0.0) -> Breaker:
    breaker = Breaker(failures=1, cooldown=10)
    breaker.record_failure("a", at)
    return breaker


def test_it_opens_after_so_many_names_in_a_row() -> None:
    breaker = Breaker(failures=3, cooldown=10)
    for name in ("a", "b"):
        breaker.record_failure(name, 0)
        assert breaker.allow(0)
    breaker.record_failure("c", 0)
    assert breaker.state is BreakerState.OPEN
    assert not breaker.allow(9.9)


def test_an_answer_in_between_starts_the_count_again() -> None:
    breaker = Breaker(failures=2, cooldown=10)
    breaker.record_failure("a", 0)
    breaker.record_answer()
    breaker.record_failure("b", 0)
    assert breaker.state is BreakerState.CLOSED


def test_after_the_cooldown_one_question_is_let_through() -> None:
    breaker = opened()
    assert [breaker.allow(10), breaker.allow(10), breaker.allow(11)] == [True, False, False]
    assert breaker.state is BreakerState.HALF_OPEN


def test_the_probe_closes_it_by_an_answer() -> None:
    breaker = opened()
    breaker.allow(10)
    breaker.record_answer()
    assert breaker.state is BreakerState.CLOSED
    assert breaker.retry_after(11) == 0


def test_the_probe_opens_it_again_by_a_failure() -> None:
    breaker = opened()
    breaker.allow(10)
    breaker.record_failure("b", 12)
    assert breaker.state is BreakerState.OPEN
    assert breaker.retry_after(12) == 10


def test_a_probe_that_never_reports_loses_its_place_after_the_cooldown() -> None:
    breaker = opened()
    breaker.allow(10)
    assert [breaker.allow(19.9), breaker.allow(20), breaker.allow(20)] == [False, True, False]


def test_failures_that_arrive_late_do_not_prolong_it() -> None:
    breaker = opened()
    breaker.record_failure("b", 9)
    assert breaker.allow(10)


def test_an_answer_that_arrives_late_closes_it() -> None:
    breaker = opened()
    breaker.record_answer()
    assert breaker.allow(1)


def test_after_it_closed_it_takes_all_failures_to_open_again() -> None:
    breaker = Breaker(failures=2, cooldown=10)
    breaker.record_failure("a", 0)
    breaker.record_failure("b", 0)
    breaker.allow(10)
    breaker.record_answer()
    breaker.record_failure("c", 11)
    assert breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize(("now", "seconds"), [(0, 10), (4, 6), (10, 0), (99, 0)])
def test_it_says_when_asking_makes_sense(now: float, seconds: float) -> None:
    assert opened().retry_after(now) == seconds


def test_a_name_counts_once_however_often_it_fails() -> None:
    breaker = Breaker(failures=2, cooldown=10)
    for now in range(10):
        breaker.record_failure("a", now)
    assert breaker.allow(10)
    breaker.record_failure("b", 10)
    assert not breaker.allow(10)


def test_the_upstream_is_in_doubt_after_so_many_names_without_a_usable_answer() -> None:
    breaker = Breaker(failures=3, cooldown=10)
    assert [breaker.suspect(name) for name in "aabbcd"] == [False, False, False, False, True, True]
    assert breaker.state is BreakerState.CLOSED


def test_who_allows_more_failures_allows_more_names_without_a_usable_answer() -> None:
    breaker = Breaker(100, 15)
    assert [breaker.suspect(str(number)) for number in range(30)].index(True) == 29


def test_an_answer_ends_the_doubt() -> None:
    breaker = Breaker(failures=2, cooldown=10)
    assert [breaker.suspect("a"), breaker.suspect("b")] == [False, True]
    breaker.record_answer()
    assert breaker.suspect("c") is False


def test_the_probe_puts_the_upstream_in_doubt_by_one_name() -> None:
    breaker = Breaker(failures=3, cooldown=10)
    breaker.open(0)
    assert breaker.suspect("a") is False
    breaker.allow(10)
    assert breaker.suspect("a") is True


def test_failures_of_names_and_of_the_upstream_are_counted_apart() -> None:
    breaker = Breaker(failures=2, cooldown=10)
    breaker.suspect("a")
    breaker.record_failure("b", 0)
    assert breaker.state is BreakerState.CLOSED


def test_timeouts_alone_put_the_upstream_in_doubt_and_open_nothing() -> None:
    breaker = Breaker(failures=3, cooldown=10)
    doubts = [breaker.record_failure(name, 0, is_timeout=True) for name in "aabbcd"]
    assert doubts == [False, False, False, False, True, True]
    assert breaker.state is BreakerState.CLOSED


def test_one_failure_that_is_not_a_timeout_opens_it_at_the_usual_number() -> None:
    breaker = Breaker(failures=3, cooldown=10)
    breaker.record_failure("a", 0)
    assert [breaker.record_failure(name, 0, is_timeout=True) for name in "bc"] == [False, False]
    assert breaker.state is BreakerState.OPEN


def test_a_probe_that_times_out_puts_the_upstream_in_doubt() -> None:
    breaker = opened()
    breaker.allow(10)
    assert breaker.record_failure("b", 12, is_timeout=True)
    assert breaker.state is BreakerState.HALF_OPEN


# --- The pause that an upstream asks for -----------------------------------------------------------------------------


FIRST, MOST = 60.0, 200.0


@table("wish, seconds", [(10, 10), (60, 60), (61, 60), (3600, 60)])
def test_the_first_pause_is_as_long_as_the_upstream_wants_and_bounded(wish: float, seconds: float) -> None:
    pause = Pause(FIRST, MOST)
    assert (pause.begin(0, wish), pause.until) == (seconds, seconds)


def test_each_pause_without_an_answer_in_between_may_last_twice_as_long() -> None:
    pause, pauses = Pause(FIRST, MOST), list[float]()
    for _ in range(4):
        pauses.append(pause.begin(sum(pauses), 3600))
    assert pauses == [60, 120, 200, 200]


def test_an_answer_begins_again_with_a_short_pause() -> None:
    pause = Pause(FIRST, MOST)
    pause.begin(0, 3600)
    pause.reset()
    assert pause.begin(60, 3600) == 60


def test_a_refusal_during_a_pause_neither_prolongs_it_nor_counts() -> None:
    pause = Pause(FIRST, MOST)
    pause.begin(0, 10)
    assert pause.begin(1, 3600) == 9
    assert pause.begin(10, 3600) == 120


def test_the_first_pause_is_never_longer_than_the_longest() -> None:
    assert Pause(FIRST, most=5).begin(0, 3600) == 5
