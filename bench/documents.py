"""The tables and the chart that come from RESULTS.md. A run of `make bench` renews them.

`python -m bench.documents` does so from the RESULTS.md that is there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from bench.chart import Bar, draw

_HERE: Final = Path(__file__).parent
RESULTS: Final = _HERE / "RESULTS.md"
#: The pages of the manual with such tables.
PAGES: Final = (_HERE.parent / "docs" / "scale.md",)
CHART: Final = _HERE / "chart.svg"
#: The table of the chart, and its contestants.
_TITLE: Final = "One hot DOI, redirect"
_CONTESTANTS: Final = ("doi-proxy", "nginx proxy_cache", "bare ASGI", "FastAPI route")
_ROWS: Final = r"(?:\|.*\n)+"
#: A comment with the first heading of a table, and the table after it.
_MARKED: Final = re.compile(rf"(?P<comment><!-- from RESULTS\.md: (?P<heading>.+) -->\n\n)(?P<table>{_ROWS})")


def renew(page: str, results: str) -> str:
    """The page with the tables of `results` in place of its own. A table that was not measured stays as it is."""

    def replace(marked: re.Match[str]) -> str:
        found = re.search(rf"^\| {re.escape(marked['heading'])} \|.*\n{_ROWS}", results, re.MULTILINE)
        return marked[0] if found is None else marked["comment"] + found[0]

    return _MARKED.sub(replace, page)


def draw_chart(results: str) -> str:
    """The chart of README as SVG: four contestants. Raises ValueError if one was not measured."""
    table = re.search(rf"^\| {re.escape(_TITLE)} \|.*\n{_ROWS}", results, re.MULTILINE)
    bars = []
    for name in _CONTESTANTS:
        row = re.search(
            rf"^\| {re.escape(name)} \| ([0-9,]+) \(([0-9,]+) to ([0-9,]+)\)", table[0] if table else "", re.M
        )
        if row is None:
            raise ValueError(f"RESULTS.md has no row {name!r} in the table {_TITLE!r}")
        bars.append(Bar(name, *(float(rate.replace(",", "")) for rate in row.groups())))
    return draw(f"{_TITLE}, on one core", bars)


def renew_pages() -> None:
    """Renew the chart and all pages."""
    results = RESULTS.read_text(encoding="utf-8")
    CHART.write_text(draw_chart(results), encoding="utf-8")
    for path in PAGES:
        path.write_text(renew(path.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    renew_pages()
