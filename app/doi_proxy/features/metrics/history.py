"""The last 24 hours as sums of five minutes, and the last hour as sums of a minute, in memory.

They have totals of the service alone: nothing about a name or a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from doi_proxy.errors import NotCached, PrefixDenied, failure_tokens

#: Seconds of one point, and the number of points: 24 hours.
STEP: Final = 300
LENGTH: Final = 288
#: The same of the last hour.
MINUTE: Final = 60
MINUTES: Final = 60
#: Seconds between two records.
RECORD_INTERVAL: Final = 30.0
#: The samples that a series sums, and the labels that a sample must have one of.
_SERIES: Final[dict[str, tuple[str, str, frozenset[str]]]] = {
    "requests": ("doi_proxy_http_requests_total", "", frozenset()),
    "answers": ("doi_proxy_cache_answers_total", "", frozenset()),
    "hits": ("doi_proxy_cache_answers_total", "kind", frozenset({"fresh", "negative", "local", "registry"})),
    "stale": ("doi_proxy_cache_answers_total", "kind", frozenset({"stale"})),
    "needed": ("doi_proxy_cache_answers_total", "kind", frozenset({"asked", "joined", "bypassed"})),
    "questions": ("doi_proxy_upstream_question_duration_seconds_count", "", frozenset()),
    "question_seconds": ("doi_proxy_upstream_question_duration_seconds_sum", "", frozenset()),
    "delays": ("doi_proxy_event_loop_delay_seconds_count", "", frozenset()),
    "delay_seconds": ("doi_proxy_event_loop_delay_seconds_sum", "", frozenset()),
}
#: Names without an answer that nothing failed for: the client allowed no query, or the operator denies the prefix.
#: The alert DoiProxyCouldNotVerify leaves them out too.
MEANT: Final = frozenset({NotCached.token, PrefixDenied.token})


@dataclass(slots=True)
class Point:
    """The sums of the series in the STEP seconds, or the MINUTE, from `start` on, in seconds since the epoch."""

    start: int
    sums: dict[str, float]


@dataclass(slots=True)
class History:
    """The points, oldest first, and the totals at the last record."""

    points: list[Point] = field(default_factory=list)
    #: Those of the last hour.
    minutes: list[Point] = field(default_factory=list)
    _totals: Mapping[str, float] = field(default_factory=dict)
    _recorded_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether the last record is RECORD_INTERVAL old, or the clock was set back since."""
        return self._recorded_at is None or not 0.0 <= now - self._recorded_at < RECORD_INTERVAL

    def record(self, now: float, totals: Mapping[str, float]) -> None:
        """Add what was counted since the last record to the points of `now`."""
        new = {name: max(0.0, total - self._totals.get(name, 0.0)) for name, total in totals.items()}
        _add(self.points, STEP, LENGTH, now, new)
        _add(self.minutes, MINUTE, MINUTES, now, new)
        self._totals, self._recorded_at = dict(totals), now

    def read_now(self, now: float, totals: Mapping[str, float]) -> History:
        """The history, with what was counted since the last record."""
        found = History(_copy(self.points), _copy(self.minutes), self._totals)
        found.record(now, totals)
        return found


def _add(points: list[Point], step: int, length: int, now: float, new: Mapping[str, float]) -> None:
    start = int(now - now % step)
    # After the clock was set back, the newest point goes on.
    if not points or points[-1].start < start:
        points.append(Point(start, {}))
    del points[:-length]
    sums = points[-1].sums
    for name, amount in new.items():
        sums[name] = sums.get(name, 0.0) + amount


class Totals:
    """The samples at a moment."""

    def __init__(self, samples: dict[str, list[Sample]]) -> None:
        self._samples = samples

    def sum(self, metric: str, label: str = "", values: frozenset[str] = frozenset()) -> float:
        """The sum of a metric, or of its samples whose label has one of the values."""
        samples = self._samples.get(metric, ())
        return sum(sample.value for sample in samples if not label or sample.labels.get(label) in values)

    def by(self, metric: str, label: str) -> dict[str, int]:
        """The sums of a counter by the value of a label, without zeros."""
        sums: dict[str, int] = {}
        for sample in self._samples.get(metric, ()):
            if sample.value:
                sums[sample.labels[label]] = sums.get(sample.labels[label], 0) + int(sample.value)
        return sums

    def series(self) -> dict[str, float]:
        """The total of each series of the history."""
        failures = failure_tokens() - MEANT
        unverified = self.sum("doi_proxy_could_not_verify_total", "reason", failures)
        return {"unverified": unverified, **{name: self.sum(*which) for name, which in _SERIES.items()}}


def read_totals(families: Iterable[Metric]) -> Totals:
    """The samples of metric families."""
    samples: dict[str, list[Sample]] = {}
    for family in families:
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    return Totals(samples)


def _copy(points: list[Point]) -> list[Point]:
    """The points with a newest one that can be changed."""
    return [*points[:-1], *(Point(last.start, dict(last.sums)) for last in points[-1:])]
