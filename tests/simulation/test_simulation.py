"""Histories of fixed seeds, in which every invariant holds."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import count

import pytest

from tests.fake_upstream import EVERY_NAME
from tests.simulation.history import CLIENTS, NAMES, NOT_A_NAME, Request, Setup, Step, draw_history, draw_setup
from tests.simulation.nth_call import STORES, find_fault, list_calls
from tests.simulation.play import play
from tests.world.calls import CALLS, OPERATIONS, How

STEPS = 25
#: Of the calls of a store, every so many is played here, and all of them in the night.
EVERY = 149


@pytest.fixture(autouse=True, scope="module")
def old_objects_stay() -> None:
    """The collector leaves alone what there was before, also after these tests. Each play collects what it leaves."""
    gc.collect()
    gc.freeze()


@pytest.mark.simulation
@pytest.mark.parametrize("seed", range(1, 11))
def test_the_invariants_hold(seed: int) -> None:
    play(seed, draw_history(seed, STEPS))


@pytest.mark.simulation
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("how", [*CALLS, *OPERATIONS])
def test_the_invariants_hold_if_a_call_of_the_store_goes_wrong(store: str, how: How) -> None:
    broken = [
        (number, found)
        for number in list_calls(store, how, EVERY)
        if (found := find_fault(store, how, number)[0]) is not None
    ]
    assert not broken


def test_a_seed_has_one_history() -> None:
    steps = draw_history(7, STEPS)
    assert play(7, steps).digest == play(7, draw_history(7, STEPS)).digest


_LIST = Step("list", 1.0, {"instance": 1, "names": [*NAMES[:20], NOT_A_NAME], "leaves_after": None})
_ASK = Step("ask", 1.0, {"requests": [Request(client, NAMES[client]) for client in range(CLIENTS)]})
_FAILOVER = Step("valkey", 1.0, {"what": "failover", "seconds": 1.5, "amount": 0.5})


def _find_seed(fits: Callable[[Setup], bool]) -> int:
    return next(seed for seed in count(1) if fits(draw_setup(seed)))


@pytest.mark.parametrize(
    ("kind", "step", "fits"),
    [
        ("list", _LIST, lambda setup: setup.instances > 1),
        ("crowd", Step("crowd", 1.0, {"instance": 0}), lambda setup: setup.instances == 1),
        ("unreadable", Step("unreadable", 1.0, {"seconds": 3.0}), lambda setup: setup.store == "file"),
        ("failover", _FAILOVER, lambda setup: setup.has_replica),
    ],
)
def test_what_a_step_is_named_after_happens(kind: str, step: Step, fits: Callable[[Setup], bool]) -> None:
    outcome = play(_find_seed(fits), [_ASK, step, _ASK, Step("wait", 20.0), _ASK])
    assert outcome.happened[kind] == 1
    assert outcome.statuses[302] >= 3 * CLIENTS
    assert outcome.rows == ({"resolved": 20, "not_a_doi": 1} if kind == "list" else {})


def test_queries_that_a_drop_has_lost_have_spent_tokens() -> None:
    requests = [Request(number % CLIENTS, name) for number, name in enumerate(NAMES[:190])]
    # The drop meets queries that are on their way, on connections of the first step.
    steps = [
        Step("ask", 10.0, {"requests": requests[:40]}),
        Step("ask", 0.0, {"requests": requests[40:]}),
        Step("drop", 10.0),
    ]
    outcome = play(_find_seed(lambda setup: setup.instances == 1), steps)
    assert outcome.statuses[503] > 0


def test_what_a_file_had_is_lost_if_a_start_finds_its_damage() -> None:
    # The total of the registry records, which no request reads.
    damage = Step("damage", 15.0, {"byte": 10 * 4096})
    fail = Step("fail", 0.0, {"name": EVERY_NAME, "kind": "status", "count": None, "options": {"status": 403}})
    seed = _find_seed(lambda setup: setup.store == "file" and setup.instances == 1)
    outcome = play(seed, [damage, _ASK, Step("wait", 5.0), Step("restart", 0.0), fail, _ASK])
    assert outcome.statuses[502] >= CLIENTS
