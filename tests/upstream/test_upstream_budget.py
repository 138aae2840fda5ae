"""The budget: a rate, a number of places, people first."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from doi_proxy.errors import BudgetSpent, NotAdmitted, PlacesFull, Quota, ShareSpent, UpstreamSlow, UpstreamTimeout
from doi_proxy.upstream.budget import SLOW_AFTER, Budget, BudgetLimits, LocalBucket
from doi_proxy.upstream.source import Priority, WaitingClients
from tests.clock import Clock
from tests.constants import changed
from tests.table import table
from tests.world.loop import run_virtually

pytestmark = pytest.mark.anyio

PERSON, BULK, BACKGROUND = Priority.PERSON, Priority.BULK, Priority.BACKGROUND
ENOUGH = 5.0
#: Queries that may wait, where a test fills the line.
FEW = 20


@pytest.fixture
def few_wait() -> Iterator[None]:
    with changed({"doi_proxy.upstream.budget.MAX_WAITING": FEW}):
        yield


def budget_of(
    clock: Clock, *, rate: float = 1.0, burst: float = 100.0, places: int = 4, reserved: float = 0.5, share: int = 100
) -> Budget:
    """A budget whose waiting moves the clock and takes no time."""

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)
        await asyncio.sleep(0)

    return Budget(limits(rate, burst, places, reserved, share), clock, sleep=sleep)


def limits(rate: float, burst: float, places: int, reserved: float = 0.5, share: int = 100) -> BudgetLimits:
    return BudgetLimits(
        rate=rate, burst=burst, max_concurrency=places, reserved_for_people=reserved, most_of_client=share
    )


class Guests:
    """Tasks that hold a slot until the test releases them. `entered` lists their names in the order of admission."""

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


class SlowBucket:
    """A bucket of another host: a token takes a while to come."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.tokens = 0.0

    async def take(self, leaving: float = 0.0) -> float:
        await self.answers.wait()
        return 0.0

    async def back_off(self, seconds: float) -> None:
        pass

    def set_rate(self, rate: float, burst: float) -> None:
        raise NotImplementedError


async def test_other_limits_hold_for_queries_that_wait_and_for_the_next_ones() -> None:
    clock = Clock(0.0)
    budget = budget_of(clock, rate=1, burst=4, places=1)
    guests = Guests(budget)
    for name in ("in flight", "waits", "waits too"):
        await guests.come(name)
    assert guests.entered == ["in flight"]
    budget.set_limits(limits(rate=2, burst=6, places=3))
    await settle()
    assert guests.entered == ["in flight", "waits", "waits too"]
    assert (budget.places, budget.rate, budget.tokens) == (3, 2, 1.0)
    clock.advance(10)
    assert budget.tokens == 6.0
    budget.set_limits(limits(rate=2, burst=6, places=1))
    await guests.come("late")
    for name in ("in flight", "waits"):
        await guests.go(name)
    assert "late" not in guests.entered
    await guests.go("waits too")
    assert guests.entered[-1] == "late"
    await guests.all_go()


def test_what_a_bucket_has_is_counted_at_the_rate_of_its_time() -> None:
    clock = Clock(0.0)
    bucket = LocalBucket(1, 10, clock)
    asyncio.run(bucket.back_off(0))
    clock.advance(2)
    bucket.set_rate(100, 1_000)
    assert bucket.tokens == 2.0
    clock.advance(1)
    assert bucket.tokens == 102.0
    bucket.set_rate(1, 5)
    assert bucket.tokens == 5.0


async def test_a_bucket_that_is_blocked_stays_blocked_at_another_rate() -> None:
    clock = Clock(0.0)
    bucket = LocalBucket(1, 10, clock)
    await bucket.back_off(60)
    bucket.set_rate(100, 100)
    clock.advance(59)
    assert bucket.tokens == 0.0
    clock.advance(2)
    assert bucket.tokens == 100.0


async def test_a_place_is_taken_while_the_token_is_on_its_way_and_free_again_after_a_cancellation() -> None:
    clock, bucket = Clock(0.0), SlowBucket()
    budget = Budget(
        BudgetLimits(rate=1, burst=1, max_concurrency=1, reserved_for_people=0, most_of_client=100),
        clock,
        bucket=bucket,
    )
    guests = Guests(budget)
    await guests.come("first")
    await guests.come("second")
    assert (budget.in_flight, budget.waiting, guests.entered) == (1, 1, [])
    guests.tasks["first"].cancel()
    bucket.answers.set()
    await settle()
    assert (budget.in_flight, budget.waiting, guests.entered) == (1, 0, ["second"])
    await guests.all_go()
    assert budget.in_flight == 0


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
        with pytest.raises(PlacesFull):
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

    budget = Budget(
        BudgetLimits(rate=1, burst=2, max_concurrency=1, reserved_for_people=0.5, most_of_client=9), clock, sleep=sleep
    )
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


async def test_a_line_that_is_full_refuses_at_once(few_wait: None) -> None:
    budget = budget_of(Clock(0.0), places=1)
    async with budget.admit(PERSON, ENOUGH), asyncio.TaskGroup() as line:
        waiting = [line.create_task(enter(budget, BULK, 600)) for _ in range(FEW)]
        await settle()
        assert budget.waiting == FEW
        with pytest.raises(PlacesFull):
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
    assert [await budget.admit_retry() for _ in range(3)] == [True, True, False]
    assert budget.tokens == 0


async def test_a_lookup_waits_for_its_token_and_no_longer_than_its_patience() -> None:
    clock = Clock(0.0)
    budget = budget_of(clock, rate=2, burst=1)
    await budget.admit_lookup(1.0)
    await budget.admit_lookup(1.0)
    assert clock() == 0.5
    with pytest.raises(BudgetSpent):
        await budget.admit_lookup(0.1)
    assert clock() == 0.5


@table("seed", range(20))
async def test_comings_goings_and_cancellations_leave_nothing_behind(seed: int) -> None:
    dice, clock = random.Random(seed), Clock(0.0)
    budget = budget_of(clock, rate=50, burst=5, places=3)
    most = 0

    async def guest() -> None:
        nonlocal most
        async with budget.admit(dice.choice(list(Priority)), dice.choice([0.01, 0.5, 60])):
            most = max(most, budget.in_flight)
            for _ in range(dice.randrange(10)):
                await asyncio.sleep(0)

    tasks = []
    for _ in range(100):
        tasks.append(asyncio.create_task(guest()))
        if dice.random() < 0.3:
            dice.choice(tasks).cancel()
        if dice.random() < 0.2:
            await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} <= {
        type(None),
        BudgetSpent,
        PlacesFull,
        UpstreamSlow,
        asyncio.CancelledError,
    }
    assert most == 3
    assert (budget.waiting, budget.in_flight) == (0, 0)


class TestClients:
    """Clients take turns: what one of them asks makes no other one wait longer than a turn."""

    A, B = "192.0.2.0/24", "198.51.100.0/24"

    async def spend(
        self, budget: Budget, client: str | None, admitted: list[str], name: str, patience: float = ENOUGH
    ) -> None:
        async with budget.admit(PERSON, patience, WaitingClients({client: None})):
            admitted.append(name)

    async def test_new_names_of_one_client_are_answered_while_another_has_forty_waiting(self) -> None:
        clock = Clock(0.0)
        budget = budget_of(clock, rate=10, burst=1, places=16)
        times: list[float] = []
        async with asyncio.TaskGroup() as group:
            flood = [group.create_task(self.spend(budget, self.A, [], "")) for _ in range(40)]
            await settle()
            for _ in range(5):
                began = clock()
                async with budget.admit(PERSON, ENOUGH, WaitingClients({self.B: None})):
                    times.append(clock() - began)
            assert not all(task.done() for task in flood)
        assert max(times) <= 0.3

    async def test_a_client_alone_uses_every_token(self) -> None:
        clock, admitted = Clock(0.0), list[str]()
        budget = budget_of(clock, rate=10, burst=1, places=16)
        async with asyncio.TaskGroup() as group:
            for number in range(41):
                group.create_task(self.spend(budget, self.A, admitted, str(number)))
        assert admitted == [str(number) for number in range(41)]
        assert clock() == pytest.approx(4.0)

    async def test_past_its_share_a_client_is_refused_and_another_is_not(self) -> None:
        budget = budget_of(Clock(0.0), places=1, share=2)
        guests = Guests(budget)
        await guests.come("first")
        waiting = [asyncio.create_task(self.spend(budget, self.A, [], "")) for _ in range(2)]
        await settle()
        with pytest.raises(ShareSpent) as refused:
            await self.spend(budget, self.A, [], "")
        assert (refused.value.quota, refused.value.retry_after) == (Quota("share", 2, 5), 1.0)
        other = asyncio.create_task(self.spend(budget, self.B, [], ""))
        await settle()
        assert (budget.waiting, budget.clients_waiting) == (3, 2)
        await guests.all_go()
        await asyncio.gather(*waiting, other)
        assert (budget.waiting, budget.clients_waiting, budget.in_flight) == (0, 0, 0)

    async def test_a_client_that_joins_a_waiting_question_waits_in_its_own_line(self) -> None:
        clock, admitted = Clock(0.0), list[str]()
        budget = budget_of(clock, rate=10, burst=1, places=16)
        shared = WaitingClients({self.A: None})

        async def last() -> None:
            async with budget.admit(PERSON, ENOUGH, shared):
                admitted.append("shared")

        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(self.spend(budget, self.A, admitted, str(number)))
            group.create_task(last())
            await asyncio.sleep(0)
            shared.join(self.B)
        assert admitted.index("shared") <= 2
        assert not shared.refused

    async def test_a_client_that_joins_late_has_its_own_patience(self) -> None:
        clock, shared, admitted = Clock(0.0), WaitingClients({self.A: None}), list[float]()
        budget = budget_of(clock, rate=1 / 7, burst=1, places=1)
        guests = Guests(budget)
        await guests.come("first")

        async def wait() -> None:
            async with budget.admit(PERSON, ENOUGH, shared):
                admitted.append(clock())

        task = asyncio.create_task(wait())
        await settle()
        clock.advance(4)
        shared.join(self.B)
        await guests.all_go()
        await task
        # The first client would have been refused: the next token came after its patience.
        assert admitted == [pytest.approx(7)]

    async def test_a_question_that_was_refused_takes_no_further_client(self) -> None:
        budget = budget_of(Clock(0.0), rate=0.01, burst=1)
        waiters = WaitingClients({self.A: None})
        await self.spend(budget, self.B, [], "")
        with pytest.raises(BudgetSpent):
            async with budget.admit(PERSON, ENOUGH, waiters):
                pass
        assert waiters.refused

    async def test_when_every_place_is_taken_the_longest_line_loses_its_newest(self, few_wait: None) -> None:
        budget = budget_of(Clock(0.0), places=1, share=FEW)
        guests = Guests(budget)
        await guests.come("first")
        flood = [asyncio.create_task(self.spend(budget, self.A, [], "")) for _ in range(FEW)]
        await settle()
        admitted = list[str]()
        other = asyncio.create_task(self.spend(budget, self.B, admitted, "b"))
        await settle()
        assert [task.exception().__class__ for task in flood if task.done()] == [ShareSpent]
        assert flood[-1].done()
        for task in flood:
            task.cancel()
        await guests.all_go()
        await asyncio.gather(*flood, return_exceptions=True)
        await other
        assert (admitted, budget.waiting, budget.in_flight) == (["b"], 0, 0)

    async def test_bulk_work_waits_for_every_client(self) -> None:
        budget = budget_of(Clock(0.0), places=1, reserved=0)
        guests = Guests(budget)
        await guests.come("first")
        await guests.come("bulk", BULK)
        admitted = list[str]()
        people = [asyncio.create_task(self.spend(budget, client, admitted, client)) for client in (self.A, self.B)]
        await settle()
        await guests.go("first")
        await asyncio.gather(*people)
        assert (admitted, guests.entered) == ([self.A, self.B], ["first", "bulk"])
        await guests.all_go()


def test_a_query_that_began_to_wait_for_a_slow_upstream_is_told_so_when_that_answers_quickly_again() -> None:
    """20 new names a second at 16 places. The upstream takes 8 s, and half a second from the 25th second on."""

    async def resolve() -> list[tuple[float, NotAdmitted]]:
        limits = BudgetLimits(rate=50, burst=100, max_concurrency=16, reserved_for_people=0.5, most_of_client=100)
        loop = asyncio.get_running_loop()
        budget, start = Budget(limits, loop.time), loop.time()
        refusals = list[tuple[float, NotAdmitted]]()

        async def query(number: int) -> None:
            await asyncio.sleep(number / 20)
            try:
                waiters = WaitingClients({f"192.0.{number % 50}.0/24": None})
                async with budget.admit(PERSON, 5.0, waiters, prefix=f"10.{1000 + number}"):
                    await asyncio.sleep(8.0 if loop.time() - start < 25 else 0.5)
            except NotAdmitted as error:
                refusals.append((loop.time() - start, error))
            except UpstreamTimeout:
                pass  # it gave its place to another client

        async with asyncio.TaskGroup() as queries:
            for number in range(600):
                queries.create_task(query(number))
        return refusals

    refusals = run_virtually(resolve())
    assert len([at for at, _ in refusals if at > 25.5]) > 5
    assert {type(error) for _, error in refusals} == {UpstreamSlow}


class _BusyBucket(LocalBucket):
    """A bucket without a token, which takes a while to say so."""

    def __init__(self) -> None:
        super().__init__(1.0, 1.0, Clock())
        self.is_read = asyncio.Event()

    async def take(self, leaving: float = 0.0) -> float:
        await self.is_read.wait()
        return 1.0


async def test_before_a_query_was_ever_sent_the_upstream_is_not_slow() -> None:
    limits = BudgetLimits(rate=1, burst=1, max_concurrency=1, reserved_for_people=0.5, most_of_client=100)
    bucket = _BusyBucket()
    budget = Budget(limits, Clock(), bucket=bucket)

    async def query(client: str) -> None:
        async with budget.admit(PERSON, 5.0, WaitingClients({client: None})):
            pass

    queries = [asyncio.create_task(query(client)) for client in ("192.0.2.0/24", "198.51.100.0/24")]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    lacks = [budget.lack]
    bucket.is_read.set()
    for _ in range(5):
        await asyncio.sleep(0)
        lacks.append(budget.lack)
    for task in queries:
        task.cancel()
    await asyncio.wait(queries)
    assert {type(lack) for lack in lacks} == {PlacesFull, BudgetSpent}


@table(
    ("seconds", "prefixes", "cause"),
    [(0.6, 1, PlacesFull), (3.0, 1, UpstreamSlow), (0.6, 200, PlacesFull), (3.0, 200, UpstreamSlow)],
)
def test_what_a_query_waits_for_is_named_as_its_cause(seconds: float, prefixes: int, cause: type[NotAdmitted]) -> None:
    """9 new names a second at 3 places: 5 a second at an upstream of 0.6 s, and 1 at one of 3 s. Tokens are left."""

    async def resolve() -> tuple[list[NotAdmitted], float]:
        limits = BudgetLimits(rate=10, burst=50, max_concurrency=3, reserved_for_people=0.5, most_of_client=100)
        budget = Budget(limits, asyncio.get_running_loop().time)
        refusals = list[NotAdmitted]()

        async def query(number: int) -> None:
            await asyncio.sleep(number / 9)
            try:
                waiters = WaitingClients({f"192.0.{number}.0/24": None})
                async with budget.admit(PERSON, 5.0, waiters, prefix=f"10.{1000 + number % prefixes}"):
                    await asyncio.sleep(seconds)
            except NotAdmitted as error:
                refusals.append(error)
            except UpstreamTimeout:
                pass  # it gave its place to another client

        async with asyncio.TaskGroup() as queries:
            for number in range(180):
                queries.create_task(query(number))
            await asyncio.sleep(10.0)
            numbers = [budget.describe(refusal) for refusal in (PlacesFull(), BudgetSpent())]
            tokens = budget.tokens
        assert all(line.startswith("3 of 3 queries are in flight") for line in numbers)
        assert [line.rpartition(", and ")[2] for line in numbers] == ["no token is missing", "no token is left"]
        return refusals, tokens

    refusals, tokens = run_virtually(resolve())
    assert len(refusals) > 50 and {type(error) for error in refusals} == {cause}
    assert tokens > 9
    assert {error.status for error in refusals} == {503}
    assert all(1.0 <= (error.retry_after or 0.0) <= max(1.0, seconds) for error in refusals)


def test_no_query_is_ended_for_one_that_waited_while_their_prefix_became_slow() -> None:
    """The one that was sent last would be, before it is sent. Its token would be lost: "budget spent" would be said."""

    async def resolve() -> tuple[list[float], list[type[NotAdmitted]], float]:
        limits = BudgetLimits(rate=1, burst=100, max_concurrency=4, reserved_for_people=0.5, most_of_client=100)
        budget = Budget(limits, asyncio.get_running_loop().time)
        seconds, refusals = list[float](), list[type[NotAdmitted]]()

        async def query(client: str) -> None:
            began = float("inf")
            try:
                async with budget.admit(PERSON, 5.0, WaitingClients({client: None}), prefix="10.1234"):
                    began = budget._clock()
                    await asyncio.sleep(8.0)
            except NotAdmitted as error:
                refusals.append(type(error))
            except UpstreamTimeout:
                seconds.append(budget._clock() - began)

        async with asyncio.TaskGroup() as queries:
            for number in range(60):
                queries.create_task(query(f"192.0.{number}.0/24"))
            await asyncio.sleep(4.9)
            tokens = budget.tokens
        return seconds, refusals, tokens

    seconds, refusals, tokens = run_virtually(resolve())
    assert min(seconds, default=SLOW_AFTER) >= SLOW_AFTER
    assert set(refusals) == {UpstreamSlow}
    assert tokens > 99
