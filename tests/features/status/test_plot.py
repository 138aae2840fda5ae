"""Plots as SVG paths."""

from __future__ import annotations

from app.features.status.plot import HEIGHT, WIDTH, plot


def test_without_values_there_is_no_path() -> None:
    assert plot("requests", []).path == ""
    assert plot("requests", [(300, None)]).path == ""


def test_the_newest_value_is_at_the_right_and_the_highest_near_the_top() -> None:
    drawn = plot("requests", [(0, 1.0), (300, 4.0)])
    assert drawn.path.endswith(f"L{WIDTH - 1} 2.0")
    assert (drawn.newest, drawn.highest) == (4.0, 4.0)


def test_a_missing_time_is_a_gap() -> None:
    assert plot("requests", [(0, 1.0), (300, 1.0), (900, 1.0)]).path.count("M") == 2


def test_zeros_are_a_line_at_the_bottom() -> None:
    assert f" {HEIGHT:.1f}" in plot("requests", [(0, 0.0), (300, 0.0)]).path
