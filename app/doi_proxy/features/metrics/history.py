"""The last 24 hours as sums of five minutes, and the last hour as sums of a minute.

They have totals of the service alone: nothing about a name or a client.

The workers of a machine share one history in a file. One of them, which holds a lock, records it; the next one goes on
after its end. `restore` puts the points of an earlier run before those of this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from doi_proxy.errors import NotCached, PrefixDenied, failure_tokens
from doi_proxy.sharing.events import Moment
from doi_proxy.sharing.memory import SharedMemory
from doi_proxy.system.files import lock_beside

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


#: A sum of a point. A point that is read may be forged.
_Sum = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class Point(msgspec.Struct):
    """The sums of the series in the STEP seconds, or the MINUTE, from `start` on."""

    start: Moment
    sums: Annotated[dict[str, _Sum], msgspec.Meta(max_length=100)]


class History(msgspec.Struct):
    """The points, oldest first, and the totals at the last record."""

    points: list[Point] = msgspec.field(default_factory=list)
    #: Those of the last hour. A restart begins with none.
    minutes: list[Point] = msgspec.field(default_factory=list)
    totals: dict[str, float] = msgspec.field(default_factory=dict)
    is_restored: bool = False

    def restore(self, earlier: Iterable[Point], now: float) -> None:
        """Put the points of an earlier run first. The five minutes in which the service restarted are those of both."""
        points = {point.start: point for point in earlier if now - LENGTH * STEP < point.start <= now}
        for point in self.points:
            before = points.pop(point.start, None)
            for name, amount in {} if before is None else before.sums.items():
                point.sums[name] = point.sums.get(name, 0.0) + amount
            points[point.start] = point
        self.points = sorted(points.values(), key=lambda point: point.start)[-LENGTH:]
        self.is_restored = True

    def record(self, now: float, totals: Mapping[str, float]) -> None:
        """Add what was counted since the last record to the points of `now`."""
        new = {name: max(0.0, total - self.totals.get(name, 0.0)) for name, total in totals.items()}
        _add(self.points, STEP, LENGTH, now, new)
        _add(self.minutes, MINUTE, MINUTES, now, new)
        self.totals = dict(totals)


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
    """The samples of all workers at a moment."""

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


class SharedHistory:
    """A history in the memory that the workers share. One of them records it: the one that has the lock."""

    def __init__(self, memory: SharedMemory, lock: Path | None) -> None:
        """`lock` is a file that the workers share. None for a process alone."""
        self._memory = memory
        self._lock_file = lock
        self._history = History()
        self._lock: int | None = None
        self._recorded_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Whether this process has to record now."""
        if self._recorded_at is not None and 0.0 <= now - self._recorded_at < RECORD_INTERVAL:
            return False
        self._recorded_at = now
        return self._lock_file is None or self._take_lock(self._lock_file)

    def record(self, now: float, totals: Mapping[str, float]) -> None:
        """Record totals. Only for a process for which the record is due."""
        self._history.record(now, totals)
        if self._lock_file is not None:
            content = msgspec.json.encode(self._history)
            self._memory.change(lambda _: content)

    @property
    def is_recorder(self) -> bool:
        """Whether this process records."""
        return self._lock_file is None or self._lock is not None

    @property
    def is_restored(self) -> bool:
        """Whether the history has the points of an earlier run. Only for the process that records."""
        return self._history.is_restored

    def restore(self, earlier: Iterable[Point], now: float) -> None:
        """See History. Only for the process that records."""
        self._history.restore(earlier, now)

    def points(self) -> list[Point]:
        """The points at the last record, oldest first."""
        return self._read().points

    def read_now(self, now: float, totals: Mapping[str, float]) -> History:
        """The history, with what was counted since the last record."""
        history = self._read()
        found = History(_copy(history.points), _copy(history.minutes), history.totals)
        found.record(now, totals)
        return found

    def _read(self) -> History:
        return self._history if self.is_recorder else _read(self._memory.read())

    def _take_lock(self, file: Path) -> bool:
        if self._lock is not None:
            return True
        self._lock = lock_beside(file)
        if self._lock is None:
            return False
        self._history = _read(self._memory.read())
        return True


def _copy(points: list[Point]) -> list[Point]:
    """The points with a newest one that can be changed."""
    return [*points[:-1], *(Point(last.start, dict(last.sums)) for last in points[-1:])]


def _read(content: bytes) -> History:
    try:
        return msgspec.json.decode(content, type=History)
    except msgspec.DecodeError:
        return History()
