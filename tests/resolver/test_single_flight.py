"""One piece of work for each key at a time, which no caller can cancel for the others."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from doi_proxy.errors import BudgetSpent, PlacesFull, UpstreamTimeout
from doi_proxy.resolver.fetcher import Replaced, SingleFlight, await_shielded
from doi_proxy.upstream.budget import SLOW_AFTER
from doi_proxy.upstream.source import WaitingClients

pytestmark = pytest.mark.anyio


class Work:
    """Work that ends when the test says so, and counts its starts."""

    def __init__(self) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()
        self.failure: Exception | None = None
        self.is_sent = False

    async def __call__(self, waiters: WaitingClients) -> int:
        self.begun += 1
        waiters.is_sent = self.is_sent
        await self.go_on.wait()
        if self.failure is not None:
            raise self.failure
        return self.begun


@pytest.fixture
async def unheeded() -> AsyncIterator[list[dict[str, Any]]]:
    """What the event loop complains of."""
    found: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(context))
    yield found
    loop.set_exception_handler(None)


async def test_callers_of_one_key_share_the_work() -> None:
    flights, work = SingleFlight[int](), Work()
    first, begun = flights.join("X", work)
    second, joined = flights.join("X", work)
    assert (begun, joined, first is second, len(flights._flights)) == (True, False, True, 1)
    work.go_on.set()
    assert list(await asyncio.gather(await_shielded(first), await_shielded(second))) == [1, 1]


async def test_callers_of_other_keys_do_not() -> None:
    flights, work = SingleFlight[int](), Work()
    assert flights.join("X", work)[0] is not flights.join("x", work)[0]
    work.go_on.set()
    await flights.close()


async def test_work_that_has_ended_is_begun_anew() -> None:
    flights, work = SingleFlight[int](), Work()
    work.go_on.set()
    assert await await_shielded(flights.join("X", work)[0]) == 1
    await asyncio.sleep(0)
    assert len(flights._flights) == 0
    assert await await_shielded(flights.join("X", work)[0]) == 2


async def test_all_callers_get_the_failure_and_the_next_one_a_new_attempt() -> None:
    flights, work = SingleFlight[int](), Work()
    work.failure = UpstreamTimeout()
    callers = [asyncio.create_task(await_shielded(flights.join("X", work)[0])) for _ in range(3)]
    work.go_on.set()
    assert await asyncio.gather(*callers, return_exceptions=True) == [work.failure] * 3
    work.failure = None
    assert await await_shielded(flights.join("X", work)[0]) == 2


async def test_a_caller_that_goes_away_cancels_no_other_caller() -> None:
    flights, work = SingleFlight[int](), Work()
    first, second = (asyncio.create_task(await_shielded(flights.join("X", work)[0])) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    work.go_on.set()
    assert (await second, work.begun) == (1, 1)


async def test_work_goes_on_when_every_caller_has_gone_away() -> None:
    flights, work = SingleFlight[int](), Work()
    task, _ = flights.join("X", work)
    caller = asyncio.create_task(await_shielded(task))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    work.go_on.set()
    assert await task == 1


async def test_a_failure_whose_caller_has_left_is_not_logged(unheeded: list[dict[str, Any]]) -> None:
    """Python 3.14 logs it if the caller used `asyncio.shield`."""
    flights, work = SingleFlight[int](), Work()
    work.failure = UpstreamTimeout()
    task, _ = flights.join("X", work)
    caller = asyncio.create_task(await_shielded(task))
    await asyncio.sleep(0)
    caller.cancel()
    work.go_on.set()
    await asyncio.wait([caller, task])
    await asyncio.sleep(0)
    assert unheeded == []


async def test_a_failure_without_a_caller_is_not_logged(unheeded: list[dict[str, Any]]) -> None:
    gc.freeze()  # the collection below looks at nothing older
    flights, work = SingleFlight[int](), Work()
    work.failure = UpstreamTimeout()
    work.go_on.set()
    task, _ = flights.join("X", work)
    await asyncio.wait([task])
    await asyncio.sleep(0)
    del task
    gc.collect()
    assert (unheeded, len(flights._flights)) == ([], 0)


async def test_a_caller_out_of_patience_leaves_the_work_going() -> None:
    flights, work = SingleFlight[int](), Work()
    task, _ = flights.join("X", work)
    with pytest.raises(TimeoutError):
        await await_shielded(task, 0)
    assert not task.done()
    work.go_on.set()
    assert await await_shielded(task) == 1


async def test_closing_ends_what_is_in_flight_and_waits_for_it(unheeded: list[dict[str, Any]]) -> None:
    flights, work = SingleFlight[int](), Work()
    tasks = [flights.join(key, work)[0] for key in ("X", "Y")]
    await asyncio.sleep(0)
    await flights.close()
    assert [task.cancelled() for task in tasks] == [True, True]
    await asyncio.sleep(0)
    assert (len(flights._flights), unheeded) == (0, [])


async def test_a_query_that_has_just_got_its_turn_lacked_it() -> None:
    flights, work = SingleFlight[int](), Work()
    flights.join("X", work)
    await asyncio.sleep(0)
    waiters = flights._flights["X"].waiters
    waiters.lacked, waiters.is_sent, waiters.sent_at = BudgetSpent(), True, asyncio.get_running_loop().time()
    assert isinstance(flights.explain_delay("X"), BudgetSpent)
    await asyncio.sleep(SLOW_AFTER)
    assert isinstance(flights.explain_delay("X"), UpstreamTimeout)
    waiters.find_lack = PlacesFull  # a second question waits
    assert isinstance(flights.explain_delay("X"), PlacesFull)
    await flights.close()


class TestUrgency:
    """Work that is not urgent may wait long for its turn; urgent work does not wait with it."""

    async def test_urgent_work_takes_the_place_of_other_work_that_waits_for_its_turn(self) -> None:
        flights, waiting, urgent = SingleFlight[int](), Work(), Work()
        caller = asyncio.create_task(await_shielded(flights.join("X", waiting, urgent=False)[0]))
        await asyncio.sleep(0)
        task, begun = flights.join("X", urgent)
        urgent.go_on.set()
        assert (begun, await await_shielded(task)) == (True, 1)
        with pytest.raises(Replaced):
            await caller

    async def test_urgent_work_joins_a_question_that_has_left(self) -> None:
        flights, work = SingleFlight[int](), Work()
        work.is_sent = True
        first, _ = flights.join("X", work, urgent=False)
        await asyncio.sleep(0)
        assert flights.join("X", work) == (first, False)
        work.go_on.set()
        assert await await_shielded(first) == 1

    @pytest.mark.parametrize("first_is_urgent", [True, False])
    async def test_work_that_is_not_urgent_joins_whatever_is_there(self, first_is_urgent: bool) -> None:
        flights, work = SingleFlight[int](), Work()
        first, _ = flights.join("X", work, urgent=first_is_urgent)
        assert flights.join("X", work, urgent=False) == (first, False)
        work.go_on.set()
        assert await await_shielded(first) == 1

    async def test_a_caller_that_goes_away_itself_is_not_overtaken(self) -> None:
        flights, work = SingleFlight[int](), Work()
        caller = asyncio.create_task(await_shielded(flights.join("X", work, urgent=False)[0]))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        assert caller.cancelled()
        work.go_on.set()
        await flights.close()


async def test_nothing_is_begun_after_closing() -> None:
    flights = SingleFlight[int]()
    await flights.close()
    with pytest.raises(asyncio.CancelledError):
        flights.join("X", Work())
