"""The budget: a rate, a number of places, people first."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest

from app.errors import BudgetSpent
from app.upstream.budget import MOST_WAITING, Budget
from app.upstream.source import Priority
from tests.clock import Clock

pytestmark = pytest.mark.anyio

PERSON, BULK, BACKGROUND = Priority.PERSON, Priority.BULK, Priority.BACKGROUND
ENOUGH = 5.0


def budget_of(
    clock: Clock, *, rate: float = 1.0, burst: float = 100.0, places: int = 4, reserved: float = 0.5
) -> Budget:
    """A budget whose waiting moves the clock and takes no time."""

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)
        await asyncio.sleep(0)

    return Budget(
        rate=rate, burst=burst, max_concurrency=places, reserved_for_people=reserved, clock=clock, sleep=sleep
    )


class Guests:
    """Tasks that hold a place until they are told to go; `entered` lists their names in the order of admission."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.entered: list[str] = []

    async def come(self, name: str, priority: Priority = PERSON, patience: float = ENOUGH) -> None:
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._stay(name, priority, patience))
        await settle()

    async def go(self, name: str) -> None:
        self._ends[name].set()
        await self.tasks[name]
        await settle()

    async def _stay(self, name: str, priority: Priority, patience: float) -> None:
        async with self._budget.admit(priority, patience):
            self.entered.append(name)
            await self._ends[name].wait()

    async def all_go(self) -> None:
        for end in self._ends.values():
            end.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_burst_goes_at_once_and_then_the_rate_holds() -> None:
    clock = Clock(0.0)
    budget = budget_of(clock, rate=2, burst=3)
    admitted = []
    for _ in range(6):
        async with budget.admit(PERSON, ENOUGH):
            admitted.append(clock())
    assert admitted == pytest.approx([0, 0, 0, 0.5, 1.0, 1.5])


async def test_who_would_wait_longer_than_its_patience_is_refused_at_once_and_told_when() -> None:
    clock = Clock(0.0)
    budget = budget_of(clock, rate=0.1, burst=1)
    async with budget.admit(PERSON, ENOUGH):
        pass
    with pytest.raises(BudgetSpent) as refused:
        async with budget.admit(PERSON, ENOUGH):
            pass
    assert refused.value.retry_after == pytest.approx(10)
    assert (clock(), budget.waiting, budget.in_flight) == (0.0, 0, 0)


async def test_who_gets_no_place_within_its_patience_is_refused() -> None:
    budget = budget_of(Clock(0.0), places=1)
    async with budget.admit(PERSON, ENOUGH):
        with pytest.raises(BudgetSpent):
            async with budget.admit(PERSON, 0.01):
                pass
    assert (budget.waiting, budget.in_flight) == (0, 0)


async def test_a_place_is_free_again_whatever_happened_in_it() -> None:
    budget = budget_of(Clock(0.0), places=1)
    with pytest.raises(KeyError):
        async with budget.admit(PERSON, ENOUGH):
            raise KeyError
    async with budget.admit(PERSON, ENOUGH):
        assert budget.in_flight == 1


async def test_first_come_first_served() -> None:
    guests = Guests(budget_of(Clock(0.0), places=1))
    for name in "abc":
        await guests.come(name)
    assert guests.entered == ["a"]
    await guests.go("a")
    assert guests.entered == ["a", "b"]
    await guests.go("b")
    assert guests.entered == ["a", "b", "c"]
    await guests.all_go()


async def test_people_go_before_bulk_and_background_that_came_earlier() -> None:
    guests = Guests(budget_of(Clock(0.0), places=1, reserved=0))
    await guests.come("first")
    await guests.come("bulk", BULK)
    await guests.come("background", BACKGROUND)
    await guests.come("person")
    for name in ("first", "person", "bulk", "background"):
        await guests.go(name)
    assert guests.entered == ["first", "person", "bulk", "background"]


@pytest.mark.parametrize(
    ("places", "reserved", "bulk"), [(4, 0.5, 2), (8, 0.75, 2), (1, 0.5, 1), (3, 0.9, 1), (4, 0, 4)]
)
async def test_bulk_never_uses_the_places_reserved_for_people(places: int, reserved: float, bulk: int) -> None:
    budget = budget_of(Clock(0.0), places=places, reserved=reserved)
    guests = Guests(budget)
    for number in range(places + 1):
        await guests.come(f"bulk {number}", BULK)
    assert budget.in_flight == bulk
    for number in range(places - bulk):
        await guests.come(f"person {number}")
    assert budget.in_flight == places
    await guests.all_go()


async def test_bulk_leaves_the_tokens_reserved_for_people() -> None:
    clock = Clock(0.0)
    budget = budget_of(clock, rate=0.001, burst=10, places=100, reserved=0.4)
    async with AsyncExitStack() as stack:
        for _ in range(6):
            await stack.enter_async_context(budget.admit(BULK, ENOUGH))
        with pytest.raises(BudgetSpent):
            await stack.enter_async_context(budget.admit(BACKGROUND, ENOUGH))
        for _ in range(4):
            await stack.enter_async_context(budget.admit(PERSON, ENOUGH))
        with pytest.raises(BudgetSpent):
            await stack.enter_async_context(budget.admit(PERSON, ENOUGH))
    assert clock() == 0


async def test_bulk_that_waits_for_tokens_holds_no_place() -> None:
    clock, waiting = Clock(0.0), asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    budget = Budget(rate=1, burst=2, max_concurrency=1, reserved_for_people=0.5, clock=clock, sleep=sleep)
    async with budget.admit(BULK, ENOUGH):
        pass
    guests = Guests(budget)
    await guests.come("bulk", BULK, patience=60)
    assert waiting.is_set()
    await guests.come("person")
    assert guests.entered == ["person"]
    guests.tasks["bulk"].cancel()
    await guests.all_go()


async def test_who_is_cancelled_while_waiting_gives_its_turn_to_the_next() -> None:
    budget = budget_of(Clock(0.0), places=1)
    guests = Guests(budget)
    for name in "abcd":
        await guests.come(name)
    guests.tasks["b"].cancel()
    guests.tasks["c"].cancel()
    await settle()
    assert budget.waiting == 1
    await guests.go("a")
    assert guests.entered == ["a", "d"]
    await guests.all_go()


async def test_who_is_cancelled_inside_frees_its_place() -> None:
    budget = budget_of(Clock(0.0), places=1)
    guests = Guests(budget)
    await guests.come("a")
    await guests.come("b")
    guests.tasks["a"].cancel()
    await settle()
    assert guests.entered == ["a", "b"]
    await guests.all_go()
    assert (budget.waiting, budget.in_flight) == (0, 0)


async def test_a_line_that_is_full_refuses_at_once() -> None:
    budget = budget_of(Clock(0.0), places=1)
    async with budget.admit(PERSON, ENOUGH), asyncio.TaskGroup() as line:
        waiting = [line.create_task(enter(budget, BULK, 600)) for _ in range(MOST_WAITING)]
        await settle()
        assert budget.waiting == MOST_WAITING
        with pytest.raises(BudgetSpent):
            await enter(budget, BACKGROUND, 600)
        for task in waiting:
            task.cancel()
    assert budget.waiting == 0


async def enter(budget: Budget, priority: Priority, patience: float) -> None:
    async with budget.admit(priority, patience):
        pass


async def test_a_budget_that_starts_empty_fills_at_its_rate() -> None:
    clock = Clock(0.0)
    budget = budget_of(clock, rate=1, burst=10)
    await budget.start_empty()
    assert budget.tokens == 0
    admitted = []
    for _ in range(2):
        async with budget.admit(PERSON, 60):
            admitted.append(clock())
    assert admitted == pytest.approx([1, 2])


async def test_one_more_request_spends_a_token_only_if_there_is_one() -> None:
    budget = budget_of(Clock(0.0), burst=2)
    assert [await budget.one_more() for _ in range(3)] == [True, True, False]
    assert budget.tokens == 0


@pytest.mark.parametrize("seed", range(20))
async def test_comings_goings_and_cancellations_leave_nothing_behind(seed: int) -> None:
    dice, clock = random.Random(seed), Clock(0.0)
    budget = budget_of(clock, rate=50, burst=5, places=3)
    most = 0

    async def guest() -> None:
        nonlocal most
        async with budget.admit(dice.choice(list(Priority)), dice.choice([0.01, 0.5, 60])):
            most = max(most, budget.in_flight)
            for _ in range(dice.randrange(5)):
                await asyncio.sleep(0)

    tasks = []
    for _ in range(100):
        tasks.append(asyncio.create_task(guest()))
        if dice.random() < 0.3:
            dice.choice(tasks).cancel()
        if dice.random() < 0.2:
            await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), BudgetSpent, asyncio.CancelledError}
    assert most == 3
    assert (budget.waiting, budget.in_flight) == (0, 0)
