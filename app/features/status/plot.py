"""Plots of the last 24 hours as SVG paths. The page draws them inline: no script, no style attribute, no other file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: The size of a plot in its own units, and the seconds that its width shows.
WIDTH: Final = 288
HEIGHT: Final = 60
SPAN: Final = 86_400
#: Seconds of one point.
_STEP: Final = 300


@dataclass(frozen=True, slots=True)
class Plot:
    """One series. `path` is the data of an SVG path in a box of WIDTH by HEIGHT; "" without values."""

    key: str
    path: str
    newest: float
    highest: float
    unit: str


def plot(key: str, values: Sequence[tuple[int, float | None]], unit: str = "") -> Plot:
    """Draw values by their time in seconds, oldest first. A value of None, or a missing time, is a gap."""
    known = [value for _, value in values if value is not None]
    if not known:
        return Plot(key, "", 0.0, 0.0, unit)
    highest, end = max(known), values[-1][0]
    pieces, before = list[str](), None
    for start, value in values:
        if value is None or end - start >= SPAN:
            before = None
            continue
        across = WIDTH - 1 - (end - start) // _STEP
        up = HEIGHT - (HEIGHT - 2) * value / highest if highest else HEIGHT
        if before != start - _STEP:
            # A point alone is a short line, because a path of one point is not drawn.
            pieces.append(f"M{across} {up:.1f}h.5")
        pieces.append(f"L{across} {up:.1f}")
        before = start
    return Plot(key, "".join(pieces), known[-1], highest, unit)
