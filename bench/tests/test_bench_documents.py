"""The tables and figures of the manual that come from RESULTS.md, and the dates of those that do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.documents import CHART, PAGES, RESULTS, draw_chart, find_figure, read_place, renew

pytestmark = pytest.mark.repository

_DOCS = Path(__file__).parents[2] / "docs"
PAGE = """Before.

<!-- from RESULTS.md: Load (all) -->

| Load (all) | rate |
| --- | ---: |
| hot | 7 |

After.
"""


def test_a_table_of_the_manual_is_replaced_by_that_of_the_results() -> None:
    results = (
        "| Load | rate |\n| --- | ---: |\n| hot | 1 |\n\n"
        "| Load (all) | rate |\n| --- | ---: |\n| hot | 9 |\n| cold | 2 |\n"
    )
    assert renew(PAGE, results) == PAGE.replace("| hot | 7 |", "| hot | 9 |\n| cold | 2 |")


def test_a_table_that_was_not_measured_stays() -> None:
    assert renew(PAGE, "# Results\n") == PAGE


def test_a_figure_is_replaced_by_that_of_its_row() -> None:
    results = (
        "| Goal | measured | wanted |\n| --- | ---: | ---: |\n| one name / ASGI | 1.70x (1.58 to 1.73) | 2 |\n\n"
        "| Row | rate | CPU |\n| --- | ---: | ---: |\n| hot | 1,234 (1 to 2) | 9.3 µs |\n"
    )
    page = "Ratio 1.5<!-- = one name / ASGI -->, 8<!-- = Row; hot; CPU --> µs, 7<!-- = Row; cold; CPU --> µs."
    assert renew(page, results) == page.replace("1.5<", "1.70<").replace("8<", "9.3<")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_the_tables_and_figures_of_the_last_results(page: Path) -> None:
    text, results = page.read_text(encoding="utf-8"), RESULTS.read_text(encoding="utf-8")
    places = re.findall("<!-- = (.+?) -->", text)
    assert places or "<!-- from RESULTS.md: " in text
    assert renew(text, results) == text
    missing = [one for one in places if find_figure(results, *read_place(one)) is None]
    assert not missing, "RESULTS.md has no such row"


#: A processor time that somebody must have measured.
_MEASURED = re.compile(r"(?<![\w.])[0-9][0-9.,]* ?(us|µs)\b|[0-9] ms of processor time|processor time of a cold name")
#: Where it is from: RESULTS.md, a command that prints it again, or a day and a commit.
_SOURCE = re.compile(
    r"<!-- (=|from RESULTS)|RESULTS\.md|\(([\w ]+; )?2026-[01][0-9]-[0-3][0-9], [0-9a-f]{8}\)|python -m bench\."
)


def test_a_figure_that_was_measured_by_hand_has_its_day_and_its_commit() -> None:
    """Decisions are of their day themselves."""
    undated = []
    for page in sorted(_DOCS.glob("*.md")):
        before = ""
        for paragraph in re.split(r"\n\s*\n", page.read_text(encoding="utf-8")):
            # The sentence before a table says where the table is from.
            shown = before + paragraph if paragraph.startswith("|") else paragraph
            if _MEASURED.search(paragraph) and not _SOURCE.search(shown):
                undated.append(f"{page.name}: {paragraph[:80]}")
            before = paragraph
    assert undated == []


def test_the_chart_shows_the_last_results() -> None:
    assert CHART.read_text(encoding="utf-8") == draw_chart(RESULTS.read_text(encoding="utf-8"))


def test_a_contestant_that_was_not_measured_is_named() -> None:
    with pytest.raises(ValueError, match="no row 'nginx proxy_cache'"):
        draw_chart("| One hot DOI, redirect | answers/s |\n| --- | ---: |\n| doi-proxy | 2 (1 to 3) | 1.0 |\n")
