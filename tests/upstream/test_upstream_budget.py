"""The budget: a rate, a number of places, people first, clients in turn, and room beside names that hang."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import count
from statistics import median
from typing import Final

import pytest

from doi_proxy.errors import BreakerOpen, BudgetSpent, NotAdmitted, PlacesFull, Quota, ShareSpent, UpstreamSlow
from doi_proxy.upstream.budget import QUEUE_TIMEOUT, Budget, BudgetLimits, LocalBucket, TokenBucket
from doi_proxy.upstream.source import Priority, QueryWait
from tests.clock import Clock
from tests.constants import changed
from tests.table import table
from tests.world.loop import run_virtually

pytestmark = pytest.mark.anyio

PERSON, BULK = Priority.PERSON, Priority.BULK
A, B, C = "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"


def budget_of(*, rate: float = 1.0, burst: float = 100.0, places: int = 4, bucket: TokenBucket | None = None) -> Budget:
    """A budget in the time of the loop, which is virtual."""
    return Budget(BudgetLimits(rate, burst, places), now, bucket=bucket)


def now() -> float:
    return asyncio.get_running_loop().time()


class Guests:
    """Tasks that hold a place until the test releases them. `entered` lists their names in the order of admission.

    Each is about a prefix of its own, unless the test says so.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.entered: list[str] = []
        self.times: list[float] = []

    async def come(
        self, *names: str, priority: Priority = PERSON, client: str | None = None, prefix: str | None = None
    ) -> None:
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._stay(name, priority, client, prefix or name))
            await settle()

    async def go(self, name: str) -> None:
        self._ends[name].set()
        await self.tasks[name]
        await settle()

    async def _stay(self, name: str, priority: Priority, client: str | None, prefix: str) -> None:
        async with self._budget.admit(priority, prefix, client):
            self.entered.append(name)
            self.times.append(now())
            await self._ends[name].wait()

    async def all_go(self) -> None:
        for end in self._ends.values():
            end.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert (self._budget.waiting, self._budget.in_flight, self._budget.clients_waiting) == (0, 0, 0)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_burst_goes_at_once_and_then_the_rate_holds() -> None:
    guests = Guests(budget_of(rate=2, burst=3, places=6))
    began = now()
    await guests.come(*"abcdef")
    await asyncio.sleep(2)
    assert [at - began for at in guests.times] == pytest.approx([0, 0, 0, 0.5, 1.0, 1.5])
    await guests.all_go()


async def test_other_limits_hold_for_queries_that_wait_and_for_the_next_ones() -> None:
    budget = budget_of(rate=1, burst=4, places=1)
    guests = Guests(budget)
    await guests.come("in flight", "waits", "waits too")
    assert guests.entered == ["in flight"]
    budget.set_limits(BudgetLimits(rate=2, burst=6, max_concurrency=3))
    await settle()
    assert guests.entered == ["in flight", "waits", "waits too"]
    assert (budget.places, budget.rate, budget.tokens) == (3, 2, 1.0)
    await asyncio.sleep(10)
    assert budget.tokens == 6.0
    budget.set_limits(BudgetLimits(rate=2, burst=6, max_concurrency=1))
    await guests.come("late")
    for name in ("in flight", "waits"):
        await guests.go(name)
    assert "late" not in guests.entered
    await guests.go("waits too")
    assert guests.entered[-1] == "late"
    await guests.all_go()


async def test_a_client_that_wants_the_name_of_another_does_not_wait_in_the_long_line_of_that_one() -> None:
    budget, wait = budget_of(rate=2, burst=1, places=8), QueryWait()
    guests = Guests(budget)
    await guests.come("in flight", *(f"name {number}" for number in range(20)), client=A)

    async def last() -> None:
        async with budget.admit(PERSON, "last", A, wait):
            guests.entered.append("last")

    task = asyncio.create_task(last())
    await settle()
    assert wait.join is not None
    for client in (B, B, A):
        wait.join(client)
    assert (budget.clients_waiting, budget.waiting_of(B)) == (2, 1)
    await asyncio.sleep(1.1)
    assert guests.entered == ["in flight", "name 0", "last"]
    assert budget.clients_waiting == 1
    # Its turn is over: who joins now waits in no line.
    wait.join(C)
    assert budget.clients_waiting == 1
    await task
    await guests.all_go()


async def test_a_name_that_many_want_stands_in_few_lines_and_leaves_them_all() -> None:
    budget, wait = budget_of(rate=1, burst=1, places=8), QueryWait()
    guests = Guests(budget)
    await guests.come("in flight", "before", client=A)

    async def wanted() -> None:
        async with budget.admit(PERSON, "wanted", B, wait):
            raise AssertionError("it is cancelled before its turn")

    task = asyncio.create_task(wanted())
    await settle()
    assert wait.join is not None
    for number in range(100):
        wait.join(f"10.{number}.0.0/24")
    assert budget.clients_waiting == 18
    task.cancel()
    await settle()
    assert budget.clients_waiting == 1
    await guests.all_go()


async def test_what_waits_when_an_outage_begins_costs_no_token_and_waits_no_longer() -> None:
    budget, refusal, ended = budget_of(rate=1, burst=2, places=8), list[BreakerOpen](), list[float]()

    async def query() -> None:
        with suppress(BreakerOpen):
            async with budget.admit(PERSON, "10.5555", A, None, lambda: refusal[0] if refusal else None):
                pass
        ended.append(now())

    began = now()
    tasks = [asyncio.create_task(query()) for _ in range(8)]
    await settle()
    await asyncio.sleep(1.5)
    refusal.append(BreakerOpen())
    await asyncio.gather(*tasks)
    assert [at - began for at in ended] == pytest.approx([0.0, 0.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    await asyncio.sleep(1.0)
    assert budget.tokens == pytest.approx(2.0)


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


class SlowBucket(LocalBucket):
    """A bucket of another host: a token takes a while to come."""

    def __init__(self) -> None:
        super().__init__(1, 10, Clock())
        self.answers = asyncio.Event()

    async def take(self, leaving: float = 0.0) -> float:
        await self.answers.wait()
        return await super().take(leaving)


async def test_a_place_is_taken_while_the_token_is_on_its_way_and_free_again_after_a_cancellation() -> None:
    bucket = SlowBucket()
    budget = budget_of(places=1, bucket=bucket)
    guests = Guests(budget)
    await guests.come("first", "second")
    assert (budget.in_flight, budget.waiting, guests.entered) == (1, 1, [])
    guests.tasks["first"].cancel()
    bucket.answers.set()
    await settle()
    assert (budget.in_flight, budget.waiting, guests.entered) == (1, 0, ["second"])
    await guests.all_go()


async def test_a_query_that_leaves_while_its_token_is_on_its_way_leaves_its_turn_to_the_next() -> None:
    bucket = SlowBucket()
    bucket.answers.set()
    guests = Guests(budget_of(places=1, bucket=bucket))
    await guests.come("first", "leaves", "next")
    bucket.answers.clear()
    await guests.go("first")
    guests.tasks["leaves"].cancel()
    await settle()
    bucket.answers.set()
    await settle()
    assert guests.entered == ["first", "next"]
    await guests.all_go()


@pytest.mark.parametrize(("priority", "seconds"), [(PERSON, 5), (BULK, 60)])
async def test_a_query_without_a_token_is_refused_after_its_time_and_told_when(
    priority: Priority, seconds: float
) -> None:
    budget = budget_of(rate=0.01, burst=1)
    guests = Guests(budget)
    await guests.come("spends")
    began = now()
    with pytest.raises(BudgetSpent) as refused:
        async with budget.admit(priority, "10.1"):
            pass
    assert now() - began == pytest.approx(seconds)
    assert refused.value.retry_after == pytest.approx(100)
    await guests.all_go()


async def test_a_query_without_a_place_is_refused_after_five_seconds() -> None:
    budget = budget_of(places=1)
    guests, began = Guests(budget), now()
    await guests.come("first")
    with pytest.raises(UpstreamSlow):
        async with budget.admit(PERSON, "10.1"):
            pass
    assert now() - began == pytest.approx(QUEUE_TIMEOUT)
    await guests.all_go()


async def test_a_place_is_free_again_whatever_happened_in_it() -> None:
    budget = budget_of(places=1)
    with pytest.raises(KeyError):
        async with budget.admit(PERSON, "10.1"):
            raise KeyError
    async with budget.admit(PERSON, "10.1"):
        assert budget.in_flight == 1


@pytest.mark.parametrize(("places", "bulk"), [(4, 2), (8, 4), (1, 1), (3, 1), (16, 8)])
async def test_bulk_never_uses_more_than_half_of_the_places(places: int, bulk: int) -> None:
    budget = budget_of(places=places)
    guests = Guests(budget)
    await guests.come(*(f"bulk {number}" for number in range(places + 1)), priority=BULK)
    assert budget.in_flight == bulk
    await guests.come(*(f"person {number}" for number in range(places - bulk)))
    assert budget.in_flight == places
    await guests.all_go()


async def test_bulk_leaves_half_of_the_tokens_to_people() -> None:
    budget = budget_of(rate=0.001, burst=10, places=100)
    async with AsyncExitStack() as stack:
        for _ in range(5):
            await stack.enter_async_context(budget.admit(BULK, "10.1"))
        with pytest.raises(BudgetSpent):
            await stack.enter_async_context(budget.admit(BULK, "10.1"))
        for _ in range(5):
            await stack.enter_async_context(budget.admit(PERSON, "10.1"))
        with pytest.raises(BudgetSpent):
            await stack.enter_async_context(budget.admit(PERSON, "10.1"))


async def test_bulk_that_waits_for_tokens_holds_no_place() -> None:
    guests = Guests(budget_of(rate=0.1, burst=4, places=1))
    for number in range(2):
        await guests.come(f"{number}", priority=BULK)
        await guests.go(f"{number}")
    await guests.come("bulk", priority=BULK)
    await guests.come("person")
    assert guests.entered == ["0", "1", "person"]
    await guests.all_go()


async def test_who_is_cancelled_gives_its_turn_and_its_place_to_the_next() -> None:
    guests = Guests(budget_of(places=1))
    await guests.come(*"abcde")
    guests.tasks["b"].cancel()
    guests.tasks["c"].cancel()
    await guests.go("a")
    assert guests.entered == ["a", "d"]
    guests.tasks["d"].cancel()
    await settle()
    assert guests.entered == ["a", "d", "e"]
    await guests.all_go()


async def test_a_budget_that_starts_empty_fills_at_its_rate() -> None:
    budget = budget_of(rate=1, burst=10)
    await budget.start_empty()
    assert budget.tokens == 0
    guests, began = Guests(budget), now()
    await guests.come("a", "b")
    await asyncio.sleep(3)
    assert [at - began for at in guests.times] == pytest.approx([1, 2])
    await guests.all_go()


async def test_one_more_request_spends_a_token_only_if_there_is_one() -> None:
    budget = budget_of(burst=2)
    assert [await budget.admit_retry() for _ in range(3)] == [True, True, False]
    assert budget.tokens == 0


async def test_a_lookup_waits_for_its_token_and_no_longer_than_its_patience() -> None:
    budget, began = budget_of(rate=2, burst=1), now()
    await budget.admit_lookup(1.0)
    await budget.admit_lookup(1.0)
    with pytest.raises(BudgetSpent):
        await budget.admit_lookup(0.1)
    assert now() - began == pytest.approx(0.5)


@table("seed", range(20))
async def test_comings_goings_and_cancellations_leave_nothing_behind(seed: int) -> None:
    dice = random.Random(seed)
    budget = budget_of(rate=50, burst=5, places=3)
    most = 0

    async def guest() -> None:
        nonlocal most
        async with budget.admit(dice.choice(list(Priority)), f"10.{dice.randrange(4)}", dice.choice([None, A, B])):
            most = max(most, budget.in_flight)
            await asyncio.sleep(dice.choice([0, 0, 0.1, 2]))

    tasks = []
    for _ in range(100):
        tasks.append(asyncio.create_task(guest()))
        if dice.random() < 0.3:
            dice.choice(tasks).cancel()
        if dice.random() < 0.2:
            await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    refusals = {BudgetSpent, PlacesFull, UpstreamSlow, asyncio.CancelledError}
    assert {type(result) for result in results} <= {type(None), *refusals}
    assert most == 3
    assert (budget.waiting, budget.in_flight) == (0, 0)


class TestClients:
    """Clients take turns: what one of them requests makes no other one wait longer than a turn."""

    async def test_clients_take_turns_however_long_their_lines_are(self) -> None:
        guests = Guests(budget_of(places=1))
        await guests.come("first")
        await guests.come("a1", "a2", "a3", client=A)
        await guests.come("b1", client=B)
        await guests.come("c1", "c2", client=C)
        for name in ("first", "a1", "b1", "c1", "a2", "c2", "a3"):
            await guests.go(name)
        assert guests.entered == ["first", "a1", "b1", "c1", "a2", "c2", "a3"]
        await guests.all_go()

    async def test_a_client_alone_uses_every_token(self) -> None:
        began, guests = now(), Guests(budget_of(rate=10, burst=1, places=100))
        await guests.come(*(f"{number}" for number in range(41)), client=A)
        await asyncio.sleep(QUEUE_TIMEOUT)
        assert guests.entered == [str(number) for number in range(41)]
        assert guests.times[-1] - began == pytest.approx(4.0)
        await guests.all_go()

    async def test_past_its_share_a_client_is_refused_and_another_is_not(self) -> None:
        with changed({"doi_proxy.upstream.budget.MOST_OF_CLIENT": 2}):
            budget = budget_of(places=1)
            guests = Guests(budget)
            await guests.come("first")
            await guests.come("a1", "a2", client=A)
            with pytest.raises(ShareSpent) as refused:
                async with budget.admit(PERSON, "10.1", A):
                    pass
            assert (refused.value.quota, refused.value.retry_after) == (Quota("share", 2, 5), 1.0)
            await guests.come("b1", client=B)
            # The service's own work has no share.
            await guests.come(*"xyz")
        assert (budget.waiting, budget.clients_waiting, budget.waiting_of(A)) == (6, 3, 2)
        await guests.all_go()

    async def test_when_all_who_may_wait_do_the_longest_line_loses_its_newest(self) -> None:
        with changed({"doi_proxy.upstream.budget.MAX_WAITING": 5}):
            guests = Guests(budget_of(places=1))
            await guests.come("first")
            await guests.come("a1", "a2", "a3", client=A)
            await guests.come("b1", "b2", client=B)
            await guests.come("c1", client=C)
            assert isinstance(guests.tasks["a3"].exception(), ShareSpent)
            # Two lines of the same length would lose their queries to each other in turn.
            await guests.come("c2", client=C)
            assert isinstance(guests.tasks["c2"].exception(), PlacesFull)
            for name in ("first", "a1", "b1", "c1", "a2", "b2"):
                await guests.go(name)
        await guests.all_go()

    async def test_bulk_work_waits_for_every_client(self) -> None:
        guests = Guests(budget_of(places=1))
        await guests.come("first")
        await guests.come("bulk", priority=BULK)
        await guests.come("a", client=A)
        await guests.come("b", client=B)
        for name in ("first", "a", "b", "bulk"):
            await guests.go(name)
        assert guests.entered == ["first", "a", "b", "bulk"]
        await guests.all_go()


class TestPrefixes:
    """The last quarter of the places is for prefixes without a query in flight."""

    async def test_one_prefix_leaves_a_quarter_of_the_places(self) -> None:
        budget = budget_of(places=8)
        guests = Guests(budget)
        await guests.come(*(f"hangs {number}" for number in range(9)), prefix="10.666")
        assert (budget.in_flight, budget.waiting) == (6, 3)
        await guests.come("other", "another")
        assert guests.entered[-2:] == ["other", "another"]
        await guests.go("hangs 0")
        assert budget.in_flight == 7  # there is one place left, and it is not for this prefix
        await guests.go("other")
        await guests.go("another")
        assert guests.entered[-1] == "hangs 6"
        await guests.all_go()

    async def test_one_prefix_leaves_a_quarter_of_the_places_of_bulk_work_too(self) -> None:
        budget = budget_of(places=16)
        guests = Guests(budget)
        await guests.come(*(f"hangs {number}" for number in range(9)), prefix="10.666", priority=BULK)
        await guests.come(*"abc", priority=BULK)
        assert (guests.entered[6:], budget.in_flight) == (["a", "b"], 8)
        await guests.all_go()

    async def test_other_names_of_a_client_overtake_those_of_a_prefix_that_hangs(self) -> None:
        budget = budget_of(places=4)
        guests = Guests(budget)
        await guests.come(*(f"hangs {number}" for number in range(4)), prefix="10.666", client=A)
        await guests.come("a", client=A)
        await guests.come("bulk", priority=BULK)
        assert guests.entered == ["hangs 0", "hangs 1", "hangs 2", "a"]
        await guests.go("a")
        assert guests.entered[-1] == "bulk"
        await guests.all_go()

    async def test_a_query_that_waits_for_a_prefix_that_hangs_is_told_so(self) -> None:
        guests = Guests(budget_of(places=4))
        await guests.come(*(f"hangs {number}" for number in range(4)), prefix="10.666")
        for number in range(20):
            await guests.come(f"quick {number}")
            await guests.go(f"quick {number}")
        await asyncio.sleep(QUEUE_TIMEOUT)
        refused = guests.tasks["hangs 3"].exception()
        assert isinstance(refused, UpstreamSlow)
        assert refused.retry_after == pytest.approx(QUEUE_TIMEOUT)
        await guests.all_go()


# --- Attacks on the places, each beside a control: names that hang for 7 s --------------------------------------------


HANGING: Final = 7.0
VICTIM: Final = "203.0.113.0/24"
#: Networks that have nothing in common, and networks of one customer.
UNRELATED: Final = [f"10.{n}.0.0/24" for n in range(200)]
CUSTOMER: Final = [f"2001:db8:0:{n:x}::/64" for n in range(200)]


def one_prefix() -> Callable[[], str]:
    return lambda: "10.666"


def new_prefixes() -> Callable[[], str]:
    numbers = count()
    return lambda: f"10.6{next(numbers):05}"


async def _attack(
    attackers: Sequence[str], prefix_of: Callable[[], str], priority: Priority
) -> tuple[int, float, float]:
    """Of 40 names of another client in 20 s, those that failed, and the median and longest wait, in seconds."""
    budget, waits, failed = Budget(BudgetLimits(rate=10, burst=50, max_concurrency=16), now), list[float](), 0

    async def hang(client: str) -> None:
        while True:
            try:
                async with budget.admit(priority, prefix_of(), client):
                    await asyncio.sleep(HANGING)
            except NotAdmitted:
                await asyncio.sleep(1.0)

    tasks = [asyncio.create_task(hang(client)) for client in attackers]
    await asyncio.sleep(2.0)
    for _ in range(40):
        began = now()
        try:
            async with budget.admit(priority, "10.1000", VICTIM):
                waits.append(now() - began)
                await asyncio.sleep(0.05)
        except NotAdmitted:
            failed += 1
            waits.append(now() - began)
        await asyncio.sleep(0.5)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (budget.in_flight, budget.waiting) == (0, 0)
    return failed, round(median(waits), 3), round(max(waits), 3)


@pytest.mark.parametrize("priority", [PERSON, BULK])
@pytest.mark.parametrize(
    "attackers",
    [
        pytest.param([], id="control"),
        pytest.param(UNRELATED[:20], id="20 networks, one name each"),
        pytest.param(UNRELATED[:40], id="40 networks"),
        pytest.param(UNRELATED[:3] * 14, id="3 networks, 14 names each"),
        pytest.param(CUSTOMER, id="200 networks of one customer"),
    ],
)
def test_a_prefix_that_hangs_keeps_no_other_waiting(attackers: Sequence[str], priority: Priority) -> None:
    failed, usual, longest = run_virtually(_attack(attackers, one_prefix(), priority))
    assert (failed, usual, longest) == (0, 0.0, 0.0)


@pytest.mark.parametrize("attackers", [UNRELATED[:1] * 40, CUSTOMER[:60]], ids=["one client", "one customer"])
def test_prefixes_of_one_customer_that_all_hang_keep_no_other_waiting(attackers: Sequence[str]) -> None:
    assert run_virtually(_attack(attackers, new_prefixes(), PERSON)) == (0, 0.0, 0.0)


def test_prefixes_of_many_clients_that_all_hang_keep_others_waiting_for_five_seconds_at_most() -> None:
    _, _, longest = run_virtually(_attack(UNRELATED[:20], new_prefixes(), PERSON))
    assert longest <= QUEUE_TIMEOUT


# --- What a query lacks: a token, a place, or an upstream that answers in time ---------------------------------------


async def test_before_a_query_was_ever_sent_the_upstream_is_not_slow() -> None:
    bucket = SlowBucket()
    await bucket.back_off(0.0)
    budget = budget_of(places=1, bucket=bucket)
    guests = Guests(budget)
    await guests.come("a", "b")
    assert isinstance(budget.lack, PlacesFull)
    bucket.answers.set()
    await settle()
    assert isinstance(budget.lack, BudgetSpent)
    for task in guests.tasks.values():
        task.cancel()
    await guests.all_go()


@table(
    ("seconds", "prefixes", "cause"),
    [(0.6, 1, PlacesFull), (3.0, 1, UpstreamSlow), (0.6, 200, PlacesFull), (3.0, 200, UpstreamSlow)],
)
def test_what_a_query_waits_for_is_named_as_its_cause(seconds: float, prefixes: int, cause: type[NotAdmitted]) -> None:
    """9 new names a second at 3 places: 5 a second at an upstream of 0.6 s, and 1 at one of 3 s. Tokens are left."""

    async def resolve() -> tuple[list[NotAdmitted], float]:
        budget = Budget(BudgetLimits(rate=10, burst=50, max_concurrency=3), now)
        refusals = list[NotAdmitted]()

        async def query(number: int) -> None:
            await asyncio.sleep(number / 9)
            try:
                async with budget.admit(PERSON, f"10.{1000 + number % prefixes}", f"192.0.{number}.0/24"):
                    await asyncio.sleep(seconds)
            except NotAdmitted as error:
                refusals.append(error)

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
