"""Histories of fixed seeds, in which every invariant holds."""

from __future__ import annotations

import pytest

from tests.simulation.history import draw_history
from tests.simulation.judge import KNOWN
from tests.simulation.play import play
from tests.table import table

STEPS = 40


@pytest.mark.parametrize("seed", range(1, 6))
def test_the_invariants_hold(seed: int) -> None:
    play(seed, draw_history(seed, STEPS))


@pytest.mark.simulation
@table("seed", range(6, 201))
def test_the_invariants_hold_in_many_short_histories(seed: int) -> None:
    """Five steps of a seed take a quarter of a second of processor time. `make nightly` plays long histories."""
    play(seed, draw_history(seed, 5))


def test_a_seed_has_one_history() -> None:
    steps = draw_history(7, STEPS)
    assert play(7, steps).digest == play(7, draw_history(7, STEPS)).digest


@pytest.mark.simulation
@pytest.mark.parametrize("invariant", KNOWN)
def test_a_known_fault_is_still_there(invariant: str) -> None:
    seed, steps, _ = KNOWN[invariant]
    assert invariant in play(seed, draw_history(seed, steps)).known
