"""The pause that an upstream asks for."""

from __future__ import annotations

from doi_proxy.upstream.guard import Pause
from tests.table import table

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
