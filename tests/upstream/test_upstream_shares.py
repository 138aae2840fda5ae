"""Attacks on the places of the upstream, each beside a control, with a virtual clock: names that hang for 7 s."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from statistics import median
from typing import Final

import pytest

from doi_proxy.errors import NotAdmitted, UpstreamTimeout
from doi_proxy.upstream.budget import Budget, BudgetLimits
from doi_proxy.upstream.source import Priority, WaitingClients
from tests.world.loop import run_virtually

#: The defaults of the settings.
LIMITS: Final = BudgetLimits(rate=10, burst=50, max_concurrency=16, reserved_for_people=0.5, most_of_client=50)
PEOPLE_WAIT: Final = 5.0
LISTS_WAIT: Final = 60.0
HANGING: Final = 7.0
QUICK: Final = 0.05
#: The names of the other client: 40 in 20 s.
NAMES: Final = 40
PAUSE: Final = 0.5
VICTIM: Final = "203.0.113.0/24"

#: Networks that have nothing in common, and networks of one customer.
UNRELATED: Final = [f"10.{n}.0.0/24" for n in range(200)]
CUSTOMER: Final = [f"2001:db8:0:{n:x}::/64" for n in range(200)]


def one_prefix() -> Callable[[], str]:
    return lambda: "10.666"


def new_prefixes() -> Callable[[], str]:
    numbers = count()
    return lambda: f"10.6{next(numbers):05}"


async def _hang(
    budget: Budget, client: str, prefix_of: Callable[[], str], priority: Priority, *, is_known: bool
) -> None:
    """Query names that hang, one after the other. With `is_known`, their server is known as slow."""
    wait = PEOPLE_WAIT if priority is Priority.PERSON else LISTS_WAIT
    while True:
        try:
            prefix = prefix_of()
            async with budget.admit(priority, wait, WaitingClients({client: None}), prefix):
                if is_known:
                    budget.mark_slow(prefix)
                await asyncio.sleep(HANGING)
        except (NotAdmitted, UpstreamTimeout):
            await asyncio.sleep(1.0)


async def _attack(
    attackers: Sequence[str],
    prefix_of: Callable[[], str],
    *,
    priority: Priority = Priority.PERSON,
    took: float = QUICK,
    is_known: bool = False,
    limits: BudgetLimits = LIMITS,
) -> tuple[int, float, float]:
    """The failed names of another client, and its median and longest wait, in seconds."""
    clock = asyncio.get_running_loop().time
    budget, waits, failed = Budget(limits, clock), list[float](), 0
    tasks = [asyncio.create_task(_hang(budget, client, prefix_of, priority, is_known=is_known)) for client in attackers]
    await asyncio.sleep(2.0)
    for _ in range(NAMES):
        began = clock()
        try:
            wait = PEOPLE_WAIT if priority is Priority.PERSON else LISTS_WAIT
            async with budget.admit(priority, wait, WaitingClients({VICTIM: None}), "10.1000"):
                assert budget.in_flight <= LIMITS.max_concurrency
                await asyncio.sleep(took)
        except (NotAdmitted, UpstreamTimeout):
            failed += 1
        waits.append(clock() - began - took)
        await asyncio.sleep(PAUSE)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (budget.in_flight, budget.waiting) == (0, 0)
    return failed, round(median(waits), 3), round(max(waits), 3)


@pytest.mark.parametrize(
    ("attackers", "prefix_of", "most"),
    [
        pytest.param([], one_prefix, 0.0, id="control"),
        pytest.param(UNRELATED[:20], one_prefix, 0.2, id="20 networks, one name each"),
        pytest.param(UNRELATED[:40], one_prefix, 0.2, id="40 networks"),
        pytest.param(UNRELATED[:3] * 14, one_prefix, 0.2, id="3 networks, 14 names each"),
        pytest.param(CUSTOMER, one_prefix, 0.2, id="200 networks of one customer"),
        pytest.param(CUSTOMER, new_prefixes, 1.1, id="200 networks of one customer, new prefixes"),
        pytest.param(UNRELATED[:20], new_prefixes, 3.0, id="20 networks, new prefixes"),
    ],
)
def test_names_that_hang_keep_no_other_client_waiting(
    attackers: Sequence[str], prefix_of: Callable[[], Callable[[], str]], most: float
) -> None:
    failed, usual, longest = run_virtually(_attack(attackers, prefix_of()))
    assert failed == 0
    assert longest <= most, (failed, usual, longest)


@pytest.mark.parametrize("attackers", [UNRELATED[:40], CUSTOMER[:60]], ids=["40 networks", "one customer"])
def test_ever_new_prefixes_of_a_slow_server_take_no_place_from_others(attackers: list[str]) -> None:
    # Enough tokens: without them, the places matter less.
    limits = replace(LIMITS, rate=1_000, burst=1_000)
    unknown = run_virtually(_attack(attackers, new_prefixes(), limits=limits))
    known = run_virtually(_attack(attackers, new_prefixes(), limits=limits, is_known=True))
    assert unknown[0] == known[0] == 0
    assert unknown[2] >= 0.4
    assert known[2] <= 0.05


def test_hanging_names_of_lists_keep_no_other_list_waiting() -> None:
    failed, _, longest = run_virtually(_attack(UNRELATED[:40], one_prefix(), priority=Priority.BULK))
    assert failed == 0
    assert longest <= 1.1


@pytest.mark.parametrize("prefix_of", [one_prefix, new_prefixes])
def test_an_answer_that_takes_two_seconds_arrives_during_an_attack_by_one_customer(
    prefix_of: Callable[[], Callable[[], str]],
) -> None:
    failed, _, longest = run_virtually(_attack(CUSTOMER[:40], prefix_of(), took=2.0))
    assert failed <= 1
    assert longest <= 3.0


@pytest.mark.parametrize("clients", [["192.0.2.0/24"] * 40, UNRELATED[:40]], ids=["one client", "40 clients"])
def test_an_upstream_that_takes_three_seconds_for_every_name_uses_all_its_places(clients: list[str]) -> None:
    async def resolve() -> tuple[int, int]:
        budget, prefixes = Budget(LIMITS, asyncio.get_running_loop().time), count()
        answered = failed = 0

        async def client(network: str) -> None:
            nonlocal answered, failed
            for _ in range(10):
                prefix = f"10.{1000 + next(prefixes) % 50}"
                try:
                    async with budget.admit(Priority.BULK, LISTS_WAIT, WaitingClients({network: None}), prefix):
                        await asyncio.sleep(3.0)
                    answered += 1
                except UpstreamTimeout:
                    failed += 1

        await asyncio.gather(*map(client, clients))
        return answered, round(asyncio.get_running_loop().time())

    answered, seconds = run_virtually(resolve())
    # The others gave way until their prefixes were known as slow.
    assert answered >= 340
    assert seconds <= 160
