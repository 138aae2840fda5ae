"""The circuit breaker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from doi_proxy.upstream.guard import Breaker, BreakerState, Pause
from tests.table import table

Event = Callable[[Breaker], bool | None]
CLOSED, HALF_OPEN, OPEN = BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN
DOUBTED, SENT, REFUSED = True, True, False


def fails(name: str, at: float = 0.0) -> Event:
    """A query about a name gets no answer."""
    return lambda breaker: breaker.record_failure(name, at)


def times_out(name: str, at: float = 0.0) -> Event:
    """A query about a name is not answered in time."""
    return lambda breaker: breaker.record_failure(name, at, is_timeout=True)


def is_unusable(name: str) -> Event:
    """What is answered about a name cannot be used."""
    return lambda breaker: breaker.suspect(name)


def asks(at: float) -> Event:
    """Somebody wants to send a query."""
    return lambda breaker: breaker.allow(at)


def answers(breaker: Breaker) -> None:
    """The upstream answers."""
    breaker.record_answer()


@table(
    ("failures", "events", "result", "state"),
    [
        # It opens after so many names in a row, and each counts once however often it fails.
        (3, [fails("a"), fails("b"), asks(0)], SENT, CLOSED),
        (3, [fails("a"), fails("b"), fails("c"), asks(9.9)], REFUSED, OPEN),
        (2, [fails("a"), fails("a", 1), fails("a", 2), asks(10)], SENT, CLOSED),
        (2, [fails("a"), answers, fails("b"), asks(0)], SENT, CLOSED),
        # After the cooldown, one query probes it.
        (1, [fails("a"), asks(10)], SENT, HALF_OPEN),
        (1, [fails("a"), asks(10), asks(11)], REFUSED, HALF_OPEN),
        (1, [fails("a"), asks(10), answers], None, CLOSED),
        (1, [fails("a"), asks(10), fails("b", 12), asks(21.9)], REFUSED, OPEN),
        # A probe that never reports loses its place after the cooldown.
        (1, [fails("a"), asks(10), asks(19.9)], REFUSED, HALF_OPEN),
        (1, [fails("a"), asks(10), asks(20)], SENT, HALF_OPEN),
        (1, [fails("a"), asks(10), asks(20), asks(20)], REFUSED, HALF_OPEN),
        # What arrives late: a failure does not prolong it, and an answer closes it.
        (1, [fails("a"), fails("b", 9), asks(10)], SENT, HALF_OPEN),
        (1, [fails("a"), answers, asks(1)], SENT, CLOSED),
        # After it closed, it takes all failures to open again.
        (2, [fails("a"), fails("b"), asks(10), answers, fails("c", 11), asks(11)], SENT, CLOSED),
        # So many names without a usable answer, or that time out, put the upstream in doubt and open nothing.
        (3, [is_unusable("a"), is_unusable("a"), is_unusable("b"), is_unusable("b")], False, CLOSED),
        (3, [is_unusable("a"), is_unusable("b"), is_unusable("c")], DOUBTED, CLOSED),
        (2, [is_unusable("a"), is_unusable("b"), answers, is_unusable("c")], False, CLOSED),
        (3, [times_out("a"), times_out("a"), times_out("b"), times_out("b")], False, CLOSED),
        (3, [times_out("a"), times_out("b"), times_out("c")], DOUBTED, CLOSED),
        (100, [is_unusable(str(number)) for number in range(29)], False, CLOSED),
        (100, [is_unusable(str(number)) for number in range(30)], DOUBTED, CLOSED),
        # The probe does so by one name.
        (1, [fails("a"), is_unusable("b")], False, OPEN),
        (1, [fails("a"), asks(10), is_unusable("b")], DOUBTED, HALF_OPEN),
        (1, [fails("a"), asks(10), times_out("b", 12)], DOUBTED, HALF_OPEN),
        # Names without a usable answer are counted apart; one failure that is no timeout opens it at the usual number.
        (2, [is_unusable("a"), fails("b"), asks(0)], SENT, CLOSED),
        (3, [fails("a"), times_out("b"), times_out("c")], False, OPEN),
    ],
    ids=lambda value: value if isinstance(value, int) else type(value).__name__,
)
def test_what_happens_moves_the_breaker(
    failures: int, events: Sequence[Event], result: bool | None, state: BreakerState
) -> None:
    breaker = Breaker(failures=failures, cooldown=10)
    assert [event(breaker) for event in events][-1] is result
    assert breaker.state is state


@pytest.mark.parametrize(("now", "seconds"), [(0, 10), (4, 6), (10, 0), (99, 0)])
def test_it_says_when_asking_makes_sense(now: float, seconds: float) -> None:
    breaker = Breaker(failures=1, cooldown=10)
    breaker.record_failure("a", 0.0)
    assert breaker.retry_after(now) == seconds


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
