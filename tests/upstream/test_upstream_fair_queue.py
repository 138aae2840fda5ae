"""Lines of waiting questions, one for each client, served in turn."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, islice
from statistics import median
from typing import Final

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_names.name import HandleName
from doi_proxy.errors import CouldNotVerify, NotAdmitted, ResourcesShort, UpstreamTimeout
from doi_proxy.system.files import find_shortage
from doi_proxy.upstream.budget import Budget, BudgetLimits, FairQueue
from doi_proxy.upstream.guard import Breaker, BreakerState
from doi_proxy.upstream.source import Priority, UpstreamQuery, WaitingClients
from tests.clock import Clock
from tests.fake_upstream import EVERY_NAME
from tests.parts import usual_api
from tests.table import table
from tests.upstream.guards import open_guard
from tests.world.loop import run_virtually
from tests.world.world import World

A, B, C = "192.0.2.0/24", "198.51.100.0/24", "2001:db8::/64"


def lines(most: int = 1000, most_of_client: int = 100) -> FairQueue[str]:
    return FairQueue(most, most_of_client)


def fill(waiting: FairQueue[str], *queries: str) -> None:
    """Put queries such as "a1" into the lines of the clients that they begin with."""
    for query in queries:
        waiting.join({"a": A, "b": B, "c": C}[query[0]], query)


def served(waiting: FairQueue[str]) -> list[str]:
    """The queries in the order in which they are served."""
    order = []
    while len(waiting.queries):
        client, query = next(waiting.turns())
        waiting.serve(client, query)
        order.append(query)
    return order


def test_a_client_alone_is_served_first_come_first_served() -> None:
    waiting = lines()
    fill(waiting, "a1", "a2", "a3")
    assert served(waiting) == ["a1", "a2", "a3"]


def test_clients_take_turns_however_long_their_lines_are() -> None:
    waiting = lines()
    fill(waiting, "a1", "a2", "a3", "a4", "b1", "c1", "c2")
    assert served(waiting) == ["a1", "b1", "c1", "a2", "c2", "a3", "a4"]


def test_a_client_that_comes_late_waits_one_turn_of_each_other_client() -> None:
    waiting = lines()
    fill(waiting, *(f"a{n}" for n in range(50)), *(f"b{n}" for n in range(50)))
    fill(waiting, "c1")
    assert served(waiting)[:3] == ["a0", "b0", "c1"]


def test_a_client_that_comes_again_after_its_turn_does_not_overtake() -> None:
    waiting = lines()
    fill(waiting, "a1", "b1", "b2")
    waiting.serve(A, "a1")
    fill(waiting, "a2")
    assert served(waiting) == ["b1", "a2", "b2"]


def test_a_query_of_two_clients_is_served_at_the_first_turn_of_either() -> None:
    waiting = lines()
    fill(waiting, "a1", "a2", "a3", "a4")
    waiting.join(B, "a4")
    assert (len(waiting.queries), waiting.clients, waiting.length(A), waiting.length(B)) == (4, 2, 4, 1)
    assert served(waiting) == ["a1", "a4", "a2", "a3"]


def test_a_client_that_joins_one_query_twice_takes_one_place() -> None:
    waiting = lines(most=3)
    fill(waiting, "a1", "a1", "a2")
    assert (waiting.length(A), waiting.has_room(A)) == (2, True)
    assert served(waiting) == ["a1", "a2"]


def test_a_query_that_leaves_leaves_every_line() -> None:
    waiting = lines()
    fill(waiting, "a1")
    waiting.join(B, "a1")
    waiting.leave("a1")
    assert (len(waiting.queries), waiting.clients) == (0, 0)
    waiting.leave("a1")


def test_a_client_has_no_room_past_its_share_and_others_have() -> None:
    waiting = lines(most_of_client=2)
    fill(waiting, "a1", "a2")
    assert (waiting.is_full(A), waiting.has_room(A), waiting.has_room(B)) == (True, False, True)


def test_the_service_s_own_work_has_no_share() -> None:
    waiting = lines(most_of_client=1)
    waiting.join(None, "first")
    assert waiting.has_room(None)


def test_when_all_places_are_taken_the_longest_line_loses_its_newest_query() -> None:
    waiting = lines(most=5)
    fill(waiting, "a1", "a2", "a3", "b1", "b2")
    assert waiting.has_room(C)
    assert waiting.join(C, "c1") == "a3"
    assert served(waiting) == ["a1", "b1", "c1", "a2", "b2"]


def test_no_query_is_lost_for_a_client_whose_line_would_be_as_long() -> None:
    waiting = lines(most=3)
    fill(waiting, "a1", "a2", "b1")
    assert (waiting.has_room(A), waiting.has_room(B), waiting.has_room(C)) == (False, False, True)


def test_a_query_that_loses_one_of_its_lines_waits_on_in_the_other() -> None:
    waiting = lines(most=4)
    fill(waiting, "a1", "a2", "a3")
    waiting.join(B, "a3")
    assert waiting.join(C, "c1") is None
    assert served(waiting) == ["a1", "a3", "c1", "a2"]


@table("seed", range(5))
def test_a_flood_of_clients_never_takes_more_than_all_places(seed: int) -> None:
    dice, waiting = random.Random(seed), FairQueue[int](200, 20)
    stands: set[int] = set()
    for query in range(5_000):
        client = f"network {dice.randrange(300)}"
        if waiting.has_room(client):
            stands |= {query}
            stands -= {waiting.join(client, query)}
        if dice.random() < 0.3 and len(waiting.queries):
            turn = next(waiting.turns())
            waiting.serve(*turn)
            stands.discard(turn[1])
        assert len(waiting.queries) == len(stands) <= 200
        assert waiting.clients <= 200


def test_a_flood_of_ten_thousand_networks_is_bounded_and_one_more_client_has_its_turn() -> None:
    waiting = FairQueue[int](1_000, 100)
    for query in range(100):
        waiting.join("first", query)
    for query in range(100, 10_100):
        client = f"network {query}"
        if waiting.has_room(client):
            waiting.join(client, query)
    # The flood took the places of the longest line, down to one. No network of the flood has two.
    assert len(waiting.queries) == waiting.clients == 1_000
    assert next(waiting.turns()) == ("first", 0)


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.booleans()), max_size=200))
def test_between_two_turns_of_a_client_no_other_client_has_two(steps: list[tuple[str, bool]]) -> None:
    waiting, query, turns = FairQueue[int](50, 10), 0, list[str]()
    for client, serves in steps:
        if serves and len(waiting.queries):
            turn = next(waiting.turns())
            waiting.serve(*turn)
            turns.append(str(turn[0]))
        elif waiting.has_room(client):
            waiting.join(client, query := query + 1)
    # Those who wait at the end wait since their last turn at the longest, so the next turns are all different.
    following = [client for client, _ in islice(waiting.turns(), 3)]
    assert len(set(following)) == len(following) == waiting.clients


# --- Attacks on the places of the upstream, each beside a control, with a virtual clock: names that hang for 7 s -----


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


# --- Whose trouble it is: the tokens, the places, the upstream, or this machine. Each has one word everywhere --------


#: A metric of the queries that were not sent.
_REFUSED = 'doi_proxy_upstream_questions_total{outcome="%s",upstream="1"}'


def test_nine_new_names_a_second_at_an_upstream_of_three_seconds_make_it_slow_and_spend_no_budget() -> None:
    with World(status_networks="0.0.0.0/0, ::/0") as world:
        world.upstream.fault(EVERY_NAME, "delay", seconds=3.0)
        clients = [world.client(f"192.0.{number}.7") for number in range(25)]
        asked = []
        for number in range(225):
            asked.append(clients[number % 25].ask(f"/10.5555/{number}", {"accept": "application/json"}))
            world.sleep(1 / 9)
        status = world.get("/status?format=json").json
        replies = [world.finish(request) for request in asked]
        refused = [reply for reply in replies if reply.status == 503]
        assert len(refused) > 20
        assert {reply.json["type"].partition("#")[2] for reply in refused} == {"upstream-slow"}
        assert all(1 <= int(reply["retry-after"] or 0) <= 4 for reply in refused)
        assert status["budget"]["tokens"] > 1.0 - 1e-9
        assert status["summary"]["sentence"].startswith("The upstream is slow, and queries about new names wait. ")
        assert status["summary"]["problems"][0] == "DoiProxyUpstreamSlow"
        (event,) = [event for event in status["events"] if event["kind"] == "refusal"]
        assert (event["cause"], event["until"]) == ("upstream-slow", None)
        (line,) = [line for line in world.log if "are refused" in line]
        assert ": upstream-slow: 16 of 16 queries are in flight, " in line and "no token is missing" in line
        metrics = world.get("/metrics").text
        assert f"{_REFUSED % 'budget-spent'} 0.0" in metrics
        assert f"{_REFUSED % 'upstream-slow'} 0.0" not in metrics
        world.upstream.fault(EVERY_NAME, "delay", seconds=0.0)
        world.sleep(15)
        assert [line for line in world.log if "queries about new names are sent again after" in line]
        summary = world.get("/status?format=json").json["summary"]
        assert "DoiProxyUpstreamSlow" not in summary["problems"]


SHORTAGES = [MemoryError(), OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENOBUFS, "No buffer space")]


class _Short(httpx.AsyncBaseTransport):
    """A transport on a machine that is short of something."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("cannot connect") from self._error


@pytest.mark.anyio
@pytest.mark.parametrize("error", SHORTAGES, ids=["memory", "files", "buffers"])
async def test_a_machine_that_is_short_of_memory_or_files_does_not_blame_the_upstream(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    clock, breaker = Clock(0.0), Breaker(failures=2, cooldown=15)
    limits = BudgetLimits(rate=10, burst=100, max_concurrency=4, reserved_for_people=0.5, most_of_client=100)
    outcomes = list[str]()
    guard = open_guard(
        usual_api("http://upstream.example", transport=_Short(error)),
        Budget(limits, clock),
        clock,
        breaker=breaker,
        record_query=lambda outcome, _: outcomes.append(outcome),
    )
    for number in range(20):
        with pytest.raises(ResourcesShort) as failure:
            await guard.fetch(UpstreamQuery(HandleName(f"10.1234/{number}")))
        assert (failure.value.status, failure.value.token) == (503, "resources-short")
        assert failure.value.retry_after
    assert breaker.state is BreakerState.CLOSED
    assert set(outcomes) == {"resources-short"} and len(outcomes) == 20
    (line,) = caplog.messages
    assert line.startswith("queries about new names are refused: resources-short: ")


@pytest.mark.parametrize("error", [OSError(errno.ECONNREFUSED, "refused"), ValueError(), socket.gaierror(-3, "again")])
def test_any_other_failure_is_no_shortage(error: Exception) -> None:
    failure = CouldNotVerify()
    failure.__cause__ = error
    assert find_shortage(failure) == ""
