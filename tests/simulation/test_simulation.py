"""Histories of fixed seeds, in which every invariant holds."""

from __future__ import annotations

import pytest

from tests.simulation.history import draw_history
from tests.simulation.judge import KNOWN
from tests.simulation.play import play

STEPS = 40


@pytest.mark.parametrize("seed", range(1, 21))
def test_the_invariants_hold(seed: int) -> None:
    play(seed, draw_history(seed, STEPS))


def test_a_seed_has_one_history() -> None:
    steps = draw_history(7, STEPS)
    assert play(7, steps).digest == play(7, draw_history(7, STEPS)).digest


@pytest.mark.parametrize("invariant", KNOWN)
def test_a_known_fault_is_still_there(invariant: str) -> None:
    seed, steps, _ = KNOWN[invariant]
    assert invariant in play(seed, draw_history(seed, steps)).known
