"""A clock that stands still until it is told otherwise."""

from __future__ import annotations


class Clock:
    """Called, it gives the time in seconds since the epoch; the default is 2023-11-14T22:13:20Z."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
