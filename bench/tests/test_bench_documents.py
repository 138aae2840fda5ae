"""The tables of the manual that come from RESULTS.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.documents import CHART, PAGES, RESULTS, draw_chart, renew

pytestmark = pytest.mark.repository

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_the_tables_of_the_last_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<!-- from RESULTS.md: " in text
    assert renew(text, RESULTS.read_text(encoding="utf-8")) == text


def test_the_chart_shows_the_last_results() -> None:
    assert CHART.read_text(encoding="utf-8") == draw_chart(RESULTS.read_text(encoding="utf-8"))


def test_a_contestant_that_was_not_measured_is_named() -> None:
    with pytest.raises(ValueError, match="no row 'nginx proxy_cache'"):
        draw_chart("| One hot DOI, redirect | answers/s |\n| --- | ---: |\n| doi-proxy | 2 (1 to 3) | 1.0 |\n")
