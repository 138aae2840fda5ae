"""Which parts of the night belong to a change, and what their record says."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.table import table
from tools import nightly
from tools.changes import ROOT
from tools.nightly import PARTS, Part, build_command, choose, run_part, write_record

pytestmark = pytest.mark.repository


@table(
    ("path", "parts"),
    [
        ("packaging/debian/build.sh", ["debian", "release", "image"]),
        ("pyproject.toml", ["debian", "release", "image"]),
        ("app/doi_proxy/features/valkey/node.py", ["clusters", "stores"]),
        ("tests/cluster/conftest.py", ["clusters"]),
        ("docs/tutorial.md", ["tutorial"]),
        ("app/doi_proxy/web/texts/layout.html", ["browsers"]),
        ("docs/errors.md", []),
    ],
)
def test_a_change_calls_for_the_parts_that_it_belongs_to(path: str, parts: list[str]) -> None:
    assert choose([path]) == parts


def test_every_path_of_the_table_exists() -> None:
    patterns = {pattern for part in PARTS.values() for pattern in (*part.tests, *part.changed)}
    assert {pattern for pattern in patterns if not any(ROOT.glob(pattern.replace("app/*.", "app/**/*.")))} == set()


def test_every_folder_and_file_of_a_part_has_tests_of_the_night() -> None:
    paths = [ROOT / path for part in PARTS.values() for path in part.tests]
    files = {path: [path] if path.is_file() else list(path.rglob("test_*.py")) for path in paths}
    marked = {path for path, tests in files.items() if any("mark.nightly" in test.read_text("utf-8") for test in tests)}
    assert set(paths) == marked


def test_a_seed_is_in_a_command() -> None:
    assert build_command("mutants", 7) == ["make", "mutants", "MUTANTS=100", "SEED=7", "ARGS=--least 0.9"]


def test_the_others_are_the_tests_of_no_other_part() -> None:
    assert "--ignore=tests/cluster" in build_command("others", 1)


def test_a_record_has_every_part_and_keeps_what_ran_before(tmp_path: Path) -> None:
    path = tmp_path / "0123abc.json"
    write_record(path, {"image": {"result": "ok"}})
    write_record(path, {"debian": {"result": "failed"}})
    record = json.loads(path.read_text())
    assert record["commit"] == "0123abc"
    assert record["failed"] == ["debian"]
    assert set(record["not_run"]) == set(PARTS) - {"image", "debian"}
    assert record["parts"]["image"] == {"result": "ok"}


def test_runs_at_the_same_time_lose_no_part_of_a_record(tmp_path: Path) -> None:
    path = tmp_path / "0123abc.json"
    with ThreadPoolExecutor(len(PARTS)) as pool:
        list(pool.map(lambda name: write_record(path, {name: {"result": "ok"}}), PARTS))
    assert json.loads(path.read_text())["not_run"] == []


@table(
    ("script", "result", "summary"),
    [
        ("echo first; echo '2 passed'", "ok", "2 passed"),
        ("echo 'tests noticed 7 of 10'; echo; echo 'make: *** Error 1'; exit 2", "failed", "tests noticed 7 of 10"),
        ("true", "ok", ""),
    ],
)
def test_a_record_has_the_last_line_of_the_output(
    script: str, result: str, summary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nightly, "FOLDER", tmp_path)
    monkeypatch.setitem(PARTS, "fuzz", Part(1, command=("sh", "-c", script)))
    recorded = run_part("fuzz", 1)
    assert (recorded["result"], recorded["summary"]) == (result, summary)


def test_parts_that_measure_time_or_share_files_run_alone() -> None:
    assert not any(PARTS[name].beside for name in ("benchmarks", "hostile", "release", "image", "debian"))
