"""A histogram that takes many observations at a time.

prometheus-client's own takes one at a time, with a lock. This one keeps its numbers in two counters, which workers
share like any other, and `assemble_histograms` turns the counters of a scrape into histograms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import HistogramMetricFamily, Metric

#: Appended to the name of the histogram: the counter of observations by bucket, and that of their sum.
_BUCKETS: Final = "_by_bucket"
_SUM: Final = "_by_sum"
_LE: Final = "le"


class DurationCounters:
    """The counters of one histogram with one label. `bounds` are the upper bounds of its buckets, in seconds."""

    def __init__(self, registry: CollectorRegistry, name: str, about: str, label: str, bounds: Sequence[float]) -> None:
        self._bounds = (*(str(bound) for bound in bounds), "+Inf")
        self._buckets = Counter(name + _BUCKETS, about, [label, _LE], registry=registry)
        self._sum = Counter(name + _SUM, about, [label], registry=registry)

    def add(self, value: str, counts: Sequence[int], seconds: float) -> None:
        """Add the observations of one label value: their number by bucket, and their sum. All buckets get a series."""
        for bound, count in zip(self._bounds, counts, strict=True):
            self._buckets.labels(value, bound).inc(count)
        self._sum.labels(value).inc(seconds)


def assemble_histograms(families: Iterable[Metric]) -> Iterator[Metric]:
    """The same families, with the counters of `DurationCounters` as histograms."""
    named = {family.name: family for family in families}
    for name, family in named.items():
        if name.endswith(_BUCKETS):
            # Another worker may be writing its first numbers. It writes sums last, so a sum has all of its buckets.
            sums = named.get(name.removesuffix(_BUCKETS) + _SUM)
            yield from [] if sums is None else [_assemble(family, sums)]
        elif not name.endswith(_SUM):
            yield family


def _assemble(buckets: Metric, sums: Metric) -> Metric:
    totals = [sample for sample in sums.samples if sample.name.endswith("_total")]
    label = next((label for sample in totals for label in sample.labels), _LE)
    counts: dict[str, dict[str, float]] = {}
    for sample in buckets.samples:
        if sample.name.endswith("_total"):
            counts.setdefault(sample.labels[label], {})[sample.labels[_LE]] = sample.value
    family = HistogramMetricFamily(buckets.name.removesuffix(_BUCKETS), buckets.documentation, labels=[label])
    for total in totals:
        value = total.labels[label]
        family.add_metric([value], _accumulate(counts[value]), total.value)
    return family


def _accumulate(counts: dict[str, float]) -> list[tuple[str, float]]:
    """The number of observations up to each bound, by ascending bound."""
    found: list[tuple[str, float]] = []
    number = 0.0
    for bound in sorted(counts, key=float):
        number += counts[bound]
        found.append((bound, number))
    return found
