"""`make simulate`: plays histories of seeds, and shortens those in which an invariant breaks."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from tests.simulation.history import Step, draw_history
from tests.simulation.judge import KNOWN, Broken
from tests.simulation.play import play

T = TypeVar("T")
#: Seconds of processor time.
_timer: Final = time.process_time


def find_failure(seed: int, steps: list[Step]) -> Broken | None:
    """The invariant that breaks in these steps."""
    try:
        play(seed, steps)
    except Broken as broken:
        return broken
    return None


class _Shortening:
    """Leaves out what the broken invariant does not need, for so many seconds of processor time."""

    def __init__(self, seed: int, invariant: str, seconds: float = 20.0) -> None:
        self._seed, self._invariant, self._ends = seed, invariant, _timer() + seconds

    def _breaks(self, steps: list[Step]) -> bool:
        broken = find_failure(self._seed, steps)
        return broken is not None and broken.invariant == self._invariant

    def shorten(self, parts: list[T], build: Callable[[list[T]], list[Step]]) -> list[T]:
        """Leave out halves of the parts, then quarters, down to one. `build` returns the steps of some parts."""
        size = (len(parts) + 1) // 2
        while size:
            at = 0
            while at < len(parts) and _timer() < self._ends:
                fewer = parts[:at] + parts[at + size :]
                if self._breaks(build(fewer)):
                    parts = fewer
                else:
                    at += size
            size = size // 2
        return parts


def shorten(seed: int, steps: list[Step], invariant: str) -> list[Step]:
    """Fewer steps, with fewer requests, in which the same invariant breaks."""
    shortening = _Shortening(seed, invariant)
    steps = shortening.shorten(steps, list)
    for at, step in enumerate(steps):
        if "requests" in step.more:
            build = partial(_with_requests, steps, at)
            steps = build(shortening.shorten(step.more["requests"], build))
    return steps


def _with_requests(steps: list[Step], at: int, requests: list[Any]) -> list[Step]:
    return [*steps[:at], replace(steps[at], more={"requests": requests}), *steps[at + 1 :]]


def main() -> int:
    """Play the seeds. Returns 1 if an invariant broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=int, default=200, help="steps of each history")
    chosen = parser.parse_args()
    began, answered, statuses, failed = _timer(), 0, Counter[int](), 0
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        steps = draw_history(seed, chosen.steps)
        try:
            outcome = play(seed, steps)
            answered += outcome.answered
            statuses.update(outcome.statuses)
        except Broken as broken:
            if broken.invariant in KNOWN:
                print(f"seed {seed}: known: {broken}", flush=True)
                continue
            failed += 1
            print(f"seed {seed}: {broken}", flush=True)
            for step in shorten(seed, steps, broken.invariant):
                print(f"    {step}")
            print(f"    replay: make simulate SEED={seed} SEEDS=1 STEPS={chosen.steps}", flush=True)
    seconds = _timer() - began
    print(f"{chosen.seeds} seeds, {answered:,} requests answered in {seconds:.1f} s of processor time:", end=" ")
    print(f"{answered / seconds:,.0f} a second")
    print(", ".join(f"{count} x {status}" for status, count in sorted(statuses.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
