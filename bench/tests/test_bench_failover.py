"""The measurement of failures: one round of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.failover import failover
from bench.machine import Cores
from bench.plan import Plan

pytestmark = [pytest.mark.nightly, pytest.mark.valkey, pytest.mark.repository]


def test_one_round_finds_no_wrong_answer(tmp_path: Path) -> None:
    (section,) = failover(Plan(0.1, 1, (), "generated", tmp_path, Cores((), ()), batch_sizes=()))
    failovers, waits = (table.rows for table in section.tables)
    assert [row[4:] for row in failovers] == [("0", "0", "0")] * 2
    assert len(waits) == 1
    assert all(claim.holds for claim in section.claims[:3])
