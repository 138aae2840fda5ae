"""The plot of the last 24 hours as SVG paths, which the page draws inline: no script, no style attribute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from math import floor, log10
from typing import Final

from doi_proxy.features.status.models import HistoryPoint

#: The size of the plot in its own units: a column is STEP seconds.
WIDTH: Final = 288
HEIGHT: Final = 100
STEP: Final = 300
_HOUR: Final = 3_600
#: Hours between two labels.
_LABELLED: Final = 6
#: Half of the width of a label on a telephone, in per cent of the plot.
_EDGE: Final = 6
#: Seconds after which the newest column has a rate.
_SETTLED: Final = 60
#: The upper edges of the scale, at a power of ten.
_STEPS: Final = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
#: What became of the names of a column, from the bottom to the top.
BANDS: Final = ("cache", "upstream", "stale", "unverified")


@dataclass(frozen=True, slots=True)
class Hour:
    """The names of one hour, in the order of BANDS, and the minutes in which an upstream was down."""

    start: int
    names: tuple[int, ...]
    down: int


@dataclass(frozen=True, slots=True)
class Plot:
    """The stacked areas by their band, the topmost first, to be painted in this order.

    `down` are the columns in which an upstream was down: place and width. `labels` are times with their place in per
    cent, and the side on which one at an edge must not stick out. `top` is the scale: names a second at the upper
    edge, 0.0 without any. `hours` are the numbers for a table.
    """

    paths: tuple[tuple[str, str], ...]
    down: tuple[tuple[int, int], ...]
    labels: tuple[tuple[str, str, str], ...]
    top: float
    hours: tuple[Hour, ...]


def count_bands(point: HistoryPoint) -> tuple[int, ...]:
    """The names of five minutes, in the order of BANDS."""
    return point.hits, max(0, point.answers - point.hits - point.stale), point.stale, point.unverified


def plot(history: Sequence[HistoryPoint], now: float) -> Plot:
    """Draw the 24 hours before `now`, in seconds since the epoch. A missing point is a gap."""
    begin = int(now - now % STEP) + STEP - WIDTH * STEP
    columns = {}
    for point in history:
        seconds = min(STEP, now - point.start)
        if point.start >= begin and seconds >= _SETTLED:
            sums = accumulate(count_bands(point))
            columns[(point.start - begin) // STEP] = [count / seconds for count in sums]
    top = _round_up(max((sums[-1] for sums in columns.values()), default=0.0))
    down = [(point.start - begin) // STEP for point in history if point.down and point.start >= begin]
    return Plot(
        paths=tuple(_draw(columns, top)) if top else (),
        down=tuple((start, len(run)) for start, run in ((run[0], run) for run in _runs(down))),
        labels=tuple(_label(begin)),
        top=top,
        hours=tuple(_sum_hours(history, begin)),
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


def _label(begin: int) -> Iterator[tuple[str, str, str]]:
    width = WIDTH * STEP
    for time in range(begin - begin % _HOUR + _HOUR, begin + width, _HOUR):
        moment, place = datetime.fromtimestamp(time, UTC), 100 * (time - begin) / width
        if moment.hour % _LABELLED == 0:
            side = "first" if place < _EDGE else "last" if place > 100 - _EDGE else ""
            yield moment.strftime("%H:%M"), f"{place:.4g}%", side


def _sum_hours(history: Sequence[HistoryPoint], begin: int) -> Iterator[Hour]:
    points = dict[int, list[HistoryPoint]]()
    for point in history:
        if point.start >= begin:
            points.setdefault(point.start - point.start % _HOUR, []).append(point)
    for start, found in points.items():
        names = tuple(map(sum, zip(*map(count_bands, found), strict=True)))
        yield Hour(start, names, round(sum(point.down for point in found) / 60))
