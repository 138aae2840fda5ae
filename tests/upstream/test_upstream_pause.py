"""The pause that an upstream asks for."""

from __future__ import annotations

import pytest

from doi_proxy.upstream.pause import LOOK_INTERVAL, Pause
from tests.clock import Clock

pytestmark = pytest.mark.anyio

FIRST, MOST = 60.0, 200.0


class Store:
    """What several processes share."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0

    async def begin(self, seconds: float) -> None:
        self._until = max(self._until, self._clock() + seconds)

    def forget(self) -> None:
        self._until = 0.0

    async def left(self) -> float:
        return max(0.0, self._until - self._clock())


@pytest.mark.parametrize(("wish", "seconds"), [(10, 10), (60, 60), (61, 60), (3600, 60)])
async def test_the_first_pause_is_as_long_as_the_upstream_wants_and_bounded(wish: float, seconds: float) -> None:
    pause = Pause(FIRST, MOST)
    assert await pause.begin(0, wish) == seconds
    assert [pause.left(0), pause.left(seconds - 1), pause.left(seconds)] == [seconds, 1, 0]


async def test_each_pause_without_an_answer_in_between_may_last_twice_as_long() -> None:
    pause, now, pauses = Pause(FIRST, MOST), 0.0, []
    for _ in range(4):
        pauses.append(await pause.begin(now, 3600))
        now += pauses[-1]
    assert pauses == [60, 120, 200, 200]


async def test_an_answer_begins_again_with_a_short_pause() -> None:
    pause = Pause(FIRST, MOST)
    await pause.begin(0, 3600)
    pause.reset()
    assert await pause.begin(60, 3600) == 60


async def test_a_refusal_during_a_pause_neither_prolongs_it_nor_counts() -> None:
    pause = Pause(FIRST, MOST)
    await pause.begin(0, 10)
    assert await pause.begin(1, 3600) == 9
    assert await pause.begin(10, 3600) == 120


async def test_the_first_pause_is_never_longer_than_the_longest() -> None:
    assert await Pause(FIRST, most=5).begin(0, 3600) == 5


async def test_a_pause_that_another_process_began_is_obeyed_and_counts() -> None:
    clock = Clock(0)
    store = Store(clock)
    one, two = (Pause(FIRST, MOST, store) for _ in range(2))
    await one.begin(clock(), 3600)
    clock.advance(20)
    assert (two.left(clock()), await two.look(clock()), two.left(clock())) == (0, 40, 40)
    clock.advance(40)
    assert await two.look(clock()) == 0
    assert await two.begin(clock(), 3600) == 120
    assert await one.look(clock()) == 120


async def test_a_pause_of_the_store_is_bounded() -> None:
    store = Store(Clock(0))
    await store.begin(1e13)
    assert await Pause(FIRST, MOST, store).look(0) == MOST


async def test_a_long_pause_of_the_store_ends_when_the_store_forgets_it() -> None:
    clock = Clock(0)
    store = Store(clock)
    await store.begin(1e13)
    pause = Pause(FIRST, MOST, store)
    assert await pause.look(clock()) == MOST
    store.forget()
    assert await pause.look(clock()) == MOST
    clock.advance(LOOK_INTERVAL)
    assert (await pause.look(clock()), pause.left(clock())) == (0, 0)


async def test_the_store_is_not_read_for_every_question() -> None:
    clock = Clock(0)
    store = Store(clock)
    one, two = (Pause(FIRST, MOST, store) for _ in range(2))
    assert await two.look(clock()) == 0
    await one.begin(clock(), 10)
    clock.advance(LOOK_INTERVAL / 2)
    assert await two.look(clock()) == 0
    clock.advance(LOOK_INTERVAL / 2)
    assert await two.look(clock()) == 10 - LOOK_INTERVAL
