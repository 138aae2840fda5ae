"""A clock that a test sets and advances."""

from __future__ import annotations


class Clock:
    """A call returns the time in seconds since the epoch. It begins at 2023-11-14T22:13:20Z."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Advance the time."""
        self.now += seconds
