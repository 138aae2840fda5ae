"""Rounds: everything is measured in turn, several times, so that a slow minute of the machine meets everybody."""

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
            raise ValueError("a series holds at least one value")

    @property
    def median(self) -> float:
        """The middle value; the mean of the two in the middle."""
        return float(median(self.values))

    @property
    def low(self) -> float:
        """The least value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The greatest value."""
        return max(self.values)

    def over(self, other: Series) -> Series:
        """The ratios to another series, round by round: a slow round slows both. Raises ValueError."""
        return Series(tuple(mine / theirs for mine, theirs in zip(self.values, other.values, strict=True)))


def interleaved(keys: Sequence[Key], rounds: int, measure: Callable[[Key], float]) -> dict[Key, Series]:
    """Measure every key once per round; each round begins with another one, so that nobody is always the first."""
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
    """One series over another, None where either was not measured."""
    return series[of].over(series[to]) if of in series and to in series else None
