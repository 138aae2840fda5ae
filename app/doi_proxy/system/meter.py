"""Counters and gauges of features. See docs/metrics.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CounterData:
    """A counter of a feature, with at most one label and the values that it can have."""

    name: str
    about: str
    label: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GaugeData:
    """A gauge of a feature."""

    name: str
    about: str


class Meter:
    """What counts for the features. This one counts nothing; the feature metrics has one that does."""

    def counter(self, data: CounterData) -> Callable[..., None]:
        """A function that increments the counter, given the value of its label if it has one, and an amount."""
        return _count_nothing

    def gauge(self, data: GaugeData, read: Callable[[], float]) -> None:
        """Read the gauge before each scrape."""


def _count_nothing(*_: object) -> None:
    """Count nothing."""


#: The counter of refused clients, which the limits, lists and the core's budget increment. The limits that can refuse
#: a client: its share of upstream queries, its request rate, the deny list, `auth` or `cert`, and open lists.
REFUSED: Final = CounterData(
    "client_refusals",
    "Answers refused because their client is over a limit or on the deny list.",
    "reason",
    ("share", "rate", "denied", "bypass", "batches"),
)
