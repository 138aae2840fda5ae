"""A bar chart of rates as SVG, for light and dark backgrounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from bench.findings import Bars
from bench.rounds import Series

_WIDTH: Final = 860
_LABEL: Final = 190
_VALUE: Final = 80
_BAR: Final = 18
_STEP: Final = 26
_TITLE: Final = 42
_FOOT: Final = 34

_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 14px; }
.note { fill: #59636e; font-size: 12px; }
.ours { fill: #0969da; }
.other { fill: #8c959f; }
.spread { stroke: #1f2328; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .note { fill: #9198a1; }
  .ours { fill: #4493f8; }
  .other { fill: #6e7681; }
  .spread { stroke: #e6edf3; }
}
"""


def draw(groups: Sequence[Bars], ours: str = "doi-proxy") -> str:
    """Draw all groups to one scale. Bars whose name begins with `ours` have a colour; whiskers show the range."""
    top = max((series.high for group in groups for _, series in group.series), default=1.0) or 1.0
    scale = (_WIDTH - _LABEL - _VALUE) / top
    height = sum(_TITLE + _STEP * len(group.series) for group in groups) + _FOOT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'role="img" aria-labelledby="title">',
        '<title id="title">Answers a second on one core, by contestant and load</title>',
        f"<style>{_STYLE}</style>",
    ]
    y = 0
    for group in groups:
        lines.append(f'<text class="title" x="0" y="{y + _TITLE - 14}">{escape(group.title)}</text>')
        y += _TITLE
        for name, series in group.series:
            lines += _bar(name, series, y, scale, name.startswith(ours))
            y += _STEP
    lines.append(
        f'<text class="note" x="0" y="{y + 22}">Answers a second: median; whiskers: slowest and fastest round.</text>'
    )
    return "\n".join([*lines, "</svg>"]) + "\n"


def _bar(name: str, series: Series, y: int, scale: float, is_ours: bool) -> Iterator[str]:
    middle = y + _BAR / 2
    base = middle + 4.5
    end = _LABEL + series.high * scale
    yield f'<text x="{_LABEL - 8}" y="{base:.1f}" text-anchor="end">{escape(name)}</text>'
    shade = "ours" if is_ours else "other"
    yield f'<rect class="{shade}" x="{_LABEL}" y="{y}" width="{series.median * scale:.1f}" height="{_BAR}" rx="2"/>'
    yield f'<path class="spread" d="M{_LABEL + series.low * scale:.1f} {middle}H{end:.1f}"/>'
    yield f'<text x="{end + 8:.1f}" y="{base:.1f}">{_short(series.median)}</text>'


def _short(rate: float) -> str:
    return f"{rate / 1000:.1f} k" if rate >= 1000 else f"{rate:.0f}"
