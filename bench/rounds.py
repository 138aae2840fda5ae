"""Rounds: all contestants are measured in turn, several times. A slow minute of the machine then affects all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity, once per round."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("a series needs at least one value")

    @property
    def median(self) -> float:
        """The median; for an even number of values, the mean of the middle two."""
        return float(median(self.values))

    @property
    def low(self) -> float:
        """The lowest value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The highest value."""
        return max(self.values)

    def over(self, other: Series) -> Series:
        """The ratios to another series, round by round, because a slow round slows both. Raises ValueError."""
        return Series(tuple(mine / theirs for mine, theirs in zip(self.values, other.values, strict=True)))


def interleaved(keys: Sequence[Key], rounds: int, measure: Callable[[Key], float]) -> dict[Key, Series]:
    """Measure every key once per round. Each round begins with a different key, because the first may be slower."""
    values: dict[Key, list[float]] = {key: [] for key in keys}
    for number in range(rounds):
        turn = number % len(keys) if keys else 0
        for key in (*keys[turn:], *keys[:turn]):
            values[key].append(measure(key))
    return {key: Series(tuple(found)) for key, found in values.items()}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of the values do not exceed: nearest rank, of values in ascending order."""
    if not ordered or not 0 <= share <= 1:
        raise ValueError("a percentile needs values and a share between 0 and 1")
    rank = -int(-share * len(ordered) // 1)  # rounded up
    return ordered[max(0, min(rank, len(ordered)) - 1)]


def ratio(series: Mapping[Key, Series], of: Key, to: Key) -> Series | None:
    """The ratio of two series, None if one was not measured."""
    return series[of].over(series[to]) if of in series and to in series else None
