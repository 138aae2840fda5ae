"""The tables, figures and the chart that come from RESULTS.md. A run of `make bench` renews them.

A figure of the manual is followed by a comment with its place in RESULTS.md: the row of the first table, or the heading
of a table, the row and the column, as in `1.70<!-- = one hot name / bare ASGI -->`.

`python -m bench.documents` does so from the RESULTS.md that is there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from bench.chart import Bar, draw

_HERE: Final = Path(__file__).parent
RESULTS: Final = _HERE / "RESULTS.md"
#: The pages of the manual with such tables and figures.
PAGES: Final = tuple(_HERE.parent / "docs" / name for name in ("performance.md", "scale.md"))
CHART: Final = _HERE / "chart.svg"
#: The table of the chart, and its contestants.
_TITLE: Final = "One hot DOI, redirect"
_CONTESTANTS: Final = ("doi-proxy", "nginx proxy_cache", "bare ASGI", "FastAPI route")
_ROWS: Final = r"(?:\|.*\n)+"
#: A comment with the first heading of a table, and the table after it.
_MARKED: Final = re.compile(rf"(?P<comment><!-- from RESULTS\.md: (?P<heading>.+) -->\n\n)(?P<table>{_ROWS})")
#: A figure, and the comment with its place.
_FIGURE: Final = re.compile(r"(?P<figure>[0-9][0-9.,]*)(?P<comment><!-- = (?P<place>[^>]+) -->)")
#: Heading and column of the first table.
_GOALS: Final = ("Goal", "measured")


def renew(page: str, results: str) -> str:
    """The page with the tables and figures of `results` in place of its own. What was not measured stays as it is."""

    def replace(marked: re.Match[str]) -> str:
        found = re.search(rf"^\| {re.escape(marked['heading'])} \|.*\n{_ROWS}", results, re.MULTILINE)
        return marked[0] if found is None else marked["comment"] + found[0]

    def write(marked: re.Match[str]) -> str:
        return (find_figure(results, *read_place(marked["place"])) or marked["figure"]) + marked["comment"]

    return _FIGURE.sub(write, _MARKED.sub(replace, page))


def read_place(place: str) -> tuple[str, str, str]:
    """The heading, the row and the column of a place. Raises ValueError if it has other parts."""
    if "; " not in place:
        return _GOALS[0], place, _GOALS[1]
    heading, row, column = place.split("; ")
    return heading, row, column


def find_figure(results: str, heading: str, row: str, column: str) -> str | None:
    """The number in a column of a row, of the table with this first heading. None if it was not measured."""
    for table in re.finditer(rf"^\| {re.escape(heading)} \|.*\n{_ROWS}", results, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table[0].splitlines()]
        for cells in rows[2:]:
            if cells[0] == row and column in rows[0]:
                found = re.match(r"[0-9][0-9.,]*", cells[rows[0].index(column)])
                return None if found is None else found[0]
    return None


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
