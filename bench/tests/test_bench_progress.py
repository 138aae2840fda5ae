"""A run of all parts that was stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.findings import Claim, Section, Table
from bench.progress import Progress, continue_run

pytestmark = pytest.mark.repository

FACTS = (("doi-proxy", "1.0.0"), ("load before the run", "0.10"))
SECTION = Section("Speed", "By hand.", (Table(("Load",), (("hot",),)),), (Claim("faster", 2, ">=", 1, "x", (1, 3)),))


def test_a_run_that_was_stopped_is_read_as_it_was(tmp_path: Path) -> None:
    stopped = Progress("2024-01-01", FACTS, {"throughput": (SECTION,)})
    stopped.keep(tmp_path / "RESULTS.json")
    assert continue_run(tmp_path / "RESULTS.json", FACTS) == stopped


def test_a_busier_machine_can_continue_it(tmp_path: Path) -> None:
    Progress("2024-01-01", FACTS, {}).keep(tmp_path / "RESULTS.json")
    continue_run(tmp_path / "RESULTS.json", (*FACTS[:1], ("load before the run", "2.00")))


def test_another_program_cannot_continue_it(tmp_path: Path) -> None:
    Progress("2024-01-01", FACTS, {}).keep(tmp_path / "RESULTS.json")
    with pytest.raises(SystemExit, match=r"had another doi-proxy: '1\.0\.0', now '1\.0\.1'"):
        continue_run(tmp_path / "RESULTS.json", (("doi-proxy", "1.0.1"), *FACTS[1:]))


def test_without_a_run_none_is_continued(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no run can be continued"):
        continue_run(tmp_path / "RESULTS.json", FACTS)
