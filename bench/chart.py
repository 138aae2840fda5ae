"""A bar chart of rates as SVG, for light and dark backgrounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

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


class Bar(NamedTuple):
    """A rate of one contestant: the median of its rounds, the slowest and the fastest one."""

    name: str
    median: float
    low: float
    high: float


def draw(title: str, bars: Sequence[Bar], ours: str = "doi-proxy") -> str:
    """Draw the bars to one scale. The bar of `ours` has a colour; whiskers show the range of the rounds."""
    scale = (_WIDTH - _LABEL - _VALUE) / max((bar.high for bar in bars), default=1.0)
    height = _TITLE + _STEP * len(bars) + _FOOT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'role="img" aria-labelledby="title">',
        '<title id="title">Answers a second on one core</title>',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="0" y="{_TITLE - 14}">{escape(title)}</text>',
    ]
    for place, bar in enumerate(bars):
        lines += _draw_bar(bar, _TITLE + _STEP * place, scale, bar.name == ours)
    lines.append(
        f'<text class="note" x="0" y="{height - _FOOT + 22}">Answers a second: median; whiskers: slowest and fastest '
        "round.</text>"
    )
    return "\n".join([*lines, "</svg>"]) + "\n"


def _draw_bar(bar: Bar, y: int, scale: float, is_ours: bool) -> Iterator[str]:
    middle = y + _BAR / 2
    base = middle + 4.5
    end = _LABEL + bar.high * scale
    yield f'<text x="{_LABEL - 8}" y="{base:.1f}" text-anchor="end">{escape(bar.name)}</text>'
    shade = "ours" if is_ours else "other"
    yield f'<rect class="{shade}" x="{_LABEL}" y="{y}" width="{bar.median * scale:.1f}" height="{_BAR}" rx="2"/>'
    yield f'<path class="spread" d="M{_LABEL + bar.low * scale:.1f} {middle}H{end:.1f}"/>'
    yield f'<text x="{end + 8:.1f}" y="{base:.1f}">{_short(bar.median)}</text>'


def _short(rate: float) -> str:
    return f"{rate / 1000:.1f} k" if rate >= 1000 else f"{rate:.0f}"
