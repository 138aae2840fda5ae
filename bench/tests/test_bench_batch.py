"""The measurement of lists: which lines a list has, and a small run of all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.batch import batch, choose_lines
from bench.batch_peers import is_unknown
from bench.machine import Cores
from bench.names import HOT, synthetic
from bench.plan import Plan
from doi_names.name import fold

pytestmark = pytest.mark.repository


def test_a_list_has_other_spellings_of_its_first_names_at_its_end() -> None:
    lines = choose_lines(synthetic(1_000), 1_000)
    assert len(lines.texts) == 1_000 and lines.distinct == 950
    assert len({fold(text) for text in lines.texts}) == 950 and len(set(lines.texts)) == 1_000
    assert [fold(text) for text in lines.texts[950:]] == [fold(text) for text in lines.texts[:50]]


def test_names_that_the_lines_cannot_have_are_left_out() -> None:
    assert choose_lines([HOT, "10.5555/\u00e9", "10.5555/a\u007fb", "10.5555/a"], 2).texts == ("10.5555/a",)


def test_whether_a_name_is_unknown_does_not_depend_on_its_spelling() -> None:
    names = synthetic(10_000)
    assert all(is_unknown(name) == is_unknown(name.upper()) for name in names)
    assert 900 < sum(map(is_unknown, names)) < 1_100
    assert not is_unknown(HOT)


def test_a_small_run_finds_every_row_and_one_query_for_each_name(tmp_path: Path) -> None:
    plan = Plan(0.1, 1, tuple(synthetic(200)), "generated", tmp_path, Cores((), ()), batch_sizes=(200,))
    (section,) = batch(plan)
    rows, redirects = (table.rows for table in section.tables)
    assert [row[-1] for row in rows] == ["right", "right"]
    assert [row[2] for row in rows] == ["190 of 190", "190 of 190"]
    assert len(redirects) == 2
