"""Histories of fixed seeds, in which every invariant holds."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.simulation.__main__ import find_failure
from tests.simulation.history import draw_history
from tests.simulation.play import play

STEPS = 40
#: Seeds of one test: forks share the tests.
SEEDS = 15


@pytest.fixture(autouse=True, scope="module")
def old_objects_stay() -> Iterator[None]:
    """The collector leaves alone what there was before. Each play collects what it leaves."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("seed", range(1, 6))
def test_the_invariants_hold(seed: int) -> None:
    play(seed, draw_history(seed, STEPS))


@pytest.mark.simulation
@pytest.mark.parametrize("first", range(6, 201, SEEDS))
def test_the_invariants_hold_in_many_short_histories(first: int) -> None:
    """Five steps of a seed take a fifth of a second of processor time. `make nightly` plays long histories."""
    broken = [
        (seed, found) for seed in range(first, first + SEEDS) if (found := find_failure(seed, draw_history(seed, 5)))
    ]
    assert not broken


def test_a_seed_has_one_history() -> None:
    steps = draw_history(7, STEPS)
    assert play(7, steps).digest == play(7, draw_history(7, STEPS)).digest
