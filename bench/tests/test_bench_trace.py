"""No journey through app/ grows, and one module decides how long an answer may be kept."""

from __future__ import annotations

import pytest

from bench.journeys import Figures, find_growth, read_table, trace_alone
from bench.trace import DECIDED, deciders

pytestmark = pytest.mark.repository


@pytest.mark.parametrize("header", DECIDED)
def test_one_module_decides_a_header(header: str) -> None:
    assert deciders(header) == ["doi_proxy/web/freshness.py"]


def test_no_journey_grew() -> None:
    """If one must grow, say why in the commit, and run `python -m bench.trace --record`."""
    measured = {name: figures for name, (_, figures) in trace_alone().items()}
    assert not find_growth(read_table(), measured)
    assert measured.keys() == read_table().keys()


def test_a_journey_that_grew_is_named() -> None:
    recorded = {"cold": Figures(40, 32, 130), "row": Figures(45, 36, 140)}
    measured = {"cold": Figures(41, 32, 130), "row": Figures(44, 36, 140), "lost": Figures(0, 0, 1)}
    assert find_growth(recorded, measured) == [
        "cold: files grew from 40 to 41",
        "lost: crossings grew from 0 to 1",
    ]
