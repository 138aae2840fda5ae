"""`make simulate`: plays histories of seeds, and shortens those in which an invariant breaks."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from tests.simulation.history import Step, draw_history
from tests.simulation.judge import Broken
from tests.simulation.play import play

T = TypeVar("T")
#: Lines of a history that are printed.
_MOST_LINES: Final = 60
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


def shorten(seed: int, steps: list[Step], broken: Broken) -> list[Step]:
    """Fewer steps, with fewer requests, in which the same invariant breaks."""
    shortening = _Shortening(seed, broken.invariant)
    steps = shortening.shorten(steps[: broken.steps], list)
    for at, step in enumerate(steps):
        if "requests" in step.more:
            build = partial(_with_requests, steps, at)
            steps = build(shortening.shorten(step.more["requests"], build))
    return steps


def _with_requests(steps: list[Step], at: int, requests: list[Any]) -> list[Step]:
    return [*steps[:at], replace(steps[at], more={**steps[at].more, "requests": requests}), *steps[at + 1 :]]


class Run:
    """Plays seeds, and counts what they come to."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._began = _timer()
        self._seeds = 0
        self._statuses, self._rows, self._happened = Counter[int](), Counter[str](), Counter[str]()
        #: The seeds that fail, by invariant.
        self.failed: dict[str, list[int]] = {}

    def play(self, seed: int) -> None:
        """Play a seed. If an invariant breaks, print a short history."""
        self._seeds += 1
        steps = draw_history(seed, self._steps)
        try:
            outcome = play(seed, steps)
        except Broken as broken:
            is_first = broken.invariant not in self.failed
            self.failed.setdefault(broken.invariant, []).append(seed)
            print(f"seed {seed}: {broken}", flush=True)
            # A history of each invariant is enough to read.
            if is_first:
                lines = [line for step in shorten(seed, steps, broken) for line in str(step).split("\n")]
                print("\n".join(f"    {line}" for line in lines[:_MOST_LINES]))
            print(f"    replay: make simulate SEED={seed} SEEDS=1 STEPS={self._steps}", flush=True)
        else:
            self._statuses.update(outcome.statuses)
            self._rows.update(outcome.rows)
            self._happened.update(outcome.happened)

    def report(self) -> None:
        """Print the counts."""
        seconds, answered = _timer() - self._began, self._statuses.total()
        speed = f"{answered / seconds:,.0f} a second"
        print(f"{self._seeds} seeds, {answered:,} requests answered in {seconds:.1f} s of processor time: {speed}")
        for counts in (self._statuses, self._rows, self._happened):
            print(", ".join(f"{number} x {what}" for what, number in sorted(counts.items())))
        for invariant, failed in self.failed.items():
            print(f"BROKEN: {invariant}: {len(failed)} seeds: {', '.join(map(str, failed[:20]))}")


def _seeds(first: int, seeds: int, minutes: float) -> Iterator[int]:
    """The seeds to play: so many, or new ones for so many minutes by the clock."""
    if not minutes:
        yield from range(first, first + seeds)
        return
    ends = time.monotonic() + 60 * minutes
    for seed in count(first):
        if time.monotonic() > ends:
            return
        yield seed


def main() -> int:
    """Play the seeds. Returns 1 if an invariant broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--steps", type=int, default=200, help="steps of each history")
    parser.add_argument("--minutes", type=float, default=0, help="play new seeds for so long, by the clock")
    chosen = parser.parse_args()
    first = int(time.time()) if chosen.minutes else chosen.seed
    print(f"the first seed is {first}", flush=True)
    # What is imported stays. What a play leaves is collected after it, at the same place of each history.
    gc.freeze()
    gc.disable()
    run = Run(chosen.steps)
    for seed in _seeds(first, chosen.seeds, chosen.minutes):
        run.play(seed)
        gc.collect()
        # The first one imported and compiled more.
        gc.freeze()
    run.report()
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
