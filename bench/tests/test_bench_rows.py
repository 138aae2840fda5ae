"""The rows of real service, and the lists of requests of their loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.names import MAX_NAMES, synthetic
from bench.requests import Load, Names, names_of, write_list
from bench.rows import ROWS

pytestmark = pytest.mark.repository
README = Path(__file__).resolve().parents[2] / "bench/README.md"


def listed(load: Load, folder: Path) -> list[str]:
    (file,) = write_list(load, synthetic(1_000), folder)
    return Path(file).read_text("ascii").splitlines()


def test_each_row_has_a_key_of_its_own_and_the_manual_has_it_with_its_goal() -> None:
    section = README.read_text("utf-8").partition("## Real service\n")[2].partition("\n\nTwo more goals")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert len({row.key for row in ROWS}) == len(ROWS)
    for row in ROWS:
        (line,) = (line for line in rows if f"`{row.key}`" in line)
        assert f"{row.wanted:g}" in line


def test_a_load_for_one_path_needs_no_list(tmp_path: Path) -> None:
    assert write_list(Load("hot"), (), tmp_path) == ()


def test_each_client_has_an_address_of_its_own(tmp_path: Path) -> None:
    lines = listed(Load("clients", "/10.1000/182", clients=2_000), tmp_path)
    assert {line.split("\t")[0] for line in lines} == {"/10.1000/182"}
    assert len({line.split("\t")[1] for line in lines}) == 2_000


def test_one_of_ten_requests_is_for_a_new_name(tmp_path: Path) -> None:
    lines = listed(Load("mixed", names=Names(1_000, one_new_in=10)), tmp_path)
    assert lines.count("*") * 10 == len(lines)


def test_without_an_exponent_each_name_is_requested_once(tmp_path: Path) -> None:
    lines = listed(Load("each", names=Names(1_000, 0.0)), tmp_path)
    assert len(set(lines)) == len(lines) == 1_000


def test_more_names_than_are_given_are_generated() -> None:
    assert names_of(Names(10), synthetic(1_000)) == synthetic(10)
    assert len(names_of(Names(MAX_NAMES + 1), synthetic(1_000))) == MAX_NAMES + 1
