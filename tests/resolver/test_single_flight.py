"""One piece of work for each key at a time, which no caller can cancel for the others."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from doi_proxy.errors import BudgetSpent, PlacesFull, UpstreamTimeout
from doi_proxy.resolver.fetcher import SingleFlight, await_shielded
from doi_proxy.upstream.budget import SLOW_AFTER
from doi_proxy.upstream.source import QueryWait

pytestmark = pytest.mark.anyio


class Work:
    """Work that ends when the test says so, and counts its starts."""

    def __init__(self) -> None:
        self.begun = 0
        self.go_on = asyncio.Event()
        self.failure: Exception | None = None

    async def __call__(self, wait: QueryWait) -> int:
        self.begun += 1
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
    wait = flights._flights["X"].wait
    wait.find_lack, wait.sent_at = BudgetSpent, asyncio.get_running_loop().time()
    assert isinstance(flights.explain_delay("X"), BudgetSpent)
    await asyncio.sleep(SLOW_AFTER)
    assert isinstance(flights.explain_delay("X"), UpstreamTimeout)
    wait.find_lack, wait.sent_at = PlacesFull, None  # a second question waits
    assert isinstance(flights.explain_delay("X"), PlacesFull)
    await flights.close()


@pytest.mark.parametrize(
    ("first_is_urgent", "is_sent", "second_is_urgent", "joins"),
    [(False, False, True, False), (False, True, True, True), (True, False, True, True), (False, False, False, True)],
)
async def test_urgent_work_joins_other_work_only_if_that_has_been_sent(
    first_is_urgent: bool, is_sent: bool, second_is_urgent: bool, joins: bool
) -> None:
    flights, first, second = SingleFlight[int](), Work(), Work()
    task, _ = flights.join("X", first, urgent=first_is_urgent)
    flights._flights["X"].wait.sent_at = 0.0 if is_sent else None
    other, is_new = flights.join("X", second, urgent=second_is_urgent)
    assert (is_new, other is task) == (not joins, joins)
    second.go_on.set()
    if not joins:
        assert await await_shielded(other) == 1
    first.go_on.set()
    assert await await_shielded(task) == 1
    await flights.close()


async def test_nothing_is_begun_after_closing() -> None:
    flights = SingleFlight[int]()
    await flights.close()
    with pytest.raises(asyncio.CancelledError):
        flights.join("X", Work())
