"""The plots of the last hour and of 24 hours as SVG paths, drawn inline: no script, no style attribute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from math import ceil, floor, log10
from typing import Final

from doi_proxy.features.status.models import HistoryPoint

#: The height of a plot in its own units.
HEIGHT: Final = 100
#: Half of the width of a label on a telephone, in per cent of the plot.
_EDGE: Final = 6
#: The share of a column after which the newest one has a rate.
_SETTLED: Final = 0.2
#: The upper edges of the scale, at a power of ten.
_STEPS: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
#: What became of the names of a column, from the bottom to the top.
BANDS: Final = ("cache", "upstream", "stale", "unverified")


@dataclass(frozen=True, slots=True)
class Span:
    """The time of a plot: columns of `step` seconds, the seconds between labels, and those of a row of its table."""

    columns: int
    step: int
    between_labels: int
    row: int


DAY: Final = Span(288, 300, 6 * 3_600, 3_600)
HOUR: Final = Span(60, 60, 900, 300)


@dataclass(frozen=True, slots=True)
class Row:
    """The names of the time from `start` on, in the order of BANDS, and the minutes in which an upstream was down."""

    start: int
    names: tuple[int, ...]
    down: int


@dataclass(frozen=True, slots=True)
class Plot:
    """The stacked areas by their band, the topmost first, to be painted in this order.

    `down` are the columns in which an upstream was down: place and width. `labels` are times with their place in per
    cent, and the side on which one at an edge must not stick out. `top` is the scale: names a second at the upper
    edge, 0.0 without any. `rows` are the numbers for a table. `width` is the number of columns.
    """

    width: int
    paths: tuple[tuple[str, str], ...]
    down: tuple[tuple[int, int], ...]
    labels: tuple[tuple[str, str, str], ...]
    top: float
    rows: tuple[Row, ...]


def count_bands(point: HistoryPoint) -> tuple[int, ...]:
    """The names of a point, in the order of BANDS."""
    return point.hits, max(0, point.answers - point.hits - point.stale), point.stale, point.unverified


def plot(history: Sequence[HistoryPoint], now: float, span: Span = DAY) -> Plot:
    """Draw the time before `now`, in seconds since the epoch. A missing point is a gap."""
    begin = int(now - now % span.step) + span.step - span.columns * span.step
    columns = {}
    for point in history:
        seconds = min(span.step, now - point.start)
        if point.start >= begin and seconds >= _SETTLED * span.step:
            sums = accumulate(count_bands(point))
            columns[(point.start - begin) // span.step] = [count / seconds for count in sums]
    top = _round_up(max((sums[-1] for sums in columns.values()), default=0.0))
    down = [(point.start - begin) // span.step for point in history if point.down and point.start >= begin]
    return Plot(
        width=span.columns,
        paths=tuple(_draw(columns, top)) if top else (),
        down=tuple((run[0], len(run)) for run in _runs(down)),
        labels=tuple(_label(begin, span)),
        top=top,
        rows=tuple(_sum_rows(history, begin, span)),
    )


def _round_up(rate: float) -> float:
    """The next round number."""
    if rate <= 0:
        return 0.0
    power = 10.0 ** floor(log10(rate))
    return float(f"{next(step for step in _STEPS if step * power >= rate * 0.999) * power:.6g}")


def _draw(columns: dict[int, list[float]], top: float) -> Iterator[tuple[str, str]]:
    for number in reversed(range(len(BANDS))):
        # An area that adds nothing would be hidden by the next one.
        if not any(sums[number] > (sums[number - 1] if number else 0.0) for sums in columns.values()):
            continue
        pieces = []
        for run in _runs(sorted(columns)):
            steps = "".join(f"V{HEIGHT * (1 - columns[column][number] / top):.4g}h1" for column in run)
            pieces.append(f"M{run[0]} {HEIGHT}{steps}V{HEIGHT}z")
        yield BANDS[number], "".join(pieces)


def _runs(columns: Sequence[int]) -> list[list[int]]:
    """Numbers in ascending order as runs without gaps."""
    runs = list[list[int]]()
    for column in columns:
        if runs and runs[-1][-1] == column - 1:
            runs[-1].append(column)
        else:
            runs.append([column])
    return runs


def _label(begin: int, span: Span) -> Iterator[tuple[str, str, str]]:
    width, distance = span.columns * span.step, span.between_labels
    for time in range(begin - begin % distance + distance, begin + width, distance):
        place = 100 * (time - begin) / width
        side = "first" if place < _EDGE else "last" if place > 100 - _EDGE else ""
        yield datetime.fromtimestamp(time, UTC).strftime("%H:%M"), f"{place:.4g}%", side


def _sum_rows(history: Sequence[HistoryPoint], begin: int, span: Span) -> Iterator[Row]:
    points = dict[int, list[HistoryPoint]]()
    for point in history:
        if point.start >= begin:
            points.setdefault(point.start - point.start % span.row, []).append(point)
    for start, found in points.items():
        names = tuple(map(sum, zip(*map(count_bands, found), strict=True)))
        yield Row(start, names, ceil(sum(point.down for point in found) / 60))
