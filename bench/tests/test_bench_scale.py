"""What the load of the DOI system takes, by its arithmetic, by simulation, and beside a running proxy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.machine import Cores
from bench.names import synthetic
from bench.plan import Plan
from bench.popularity import Popularity
from bench.scale import (
    NOT_FOUND,
    RECORD_BYTES,
    REGISTERED,
    RESOLUTIONS_A_SECOND,
    Effort,
    World,
    default,
    need,
    scale,
    usual_sizes,
)
from bench.scale_check import Costs
from bench.simulation import Shares

pytestmark = pytest.mark.repository

LAW = Popularity(REGISTERED, 0.85)
COSTS = Costs(memory=0.001, store=0.002, upstream=0.004, resident=2**26)


def plan(folder: Path, names: int) -> Plan:
    return Plan(0.1, 1, tuple(synthetic(names)), "generated", folder, Cores((), ()), batch_sizes=(200,))


def test_a_billion_resolutions_a_month_are_some_hundreds_a_second() -> None:
    assert pytest.approx(441, abs=1) == RESOLUTIONS_A_SECOND


def test_cores_are_the_processor_time_of_all_answers_at_the_peak_on_half_busy_cores() -> None:
    found = need(1.0, Shares(memory=50, store=25, upstream=25, refreshes=0), COSTS, LAW)
    upstream = 0.97 * 0.25 + NOT_FOUND
    each = 0.97 * (0.5 * 0.001 + 0.25 * 0.002) + upstream * 0.004
    assert found.cores == pytest.approx(3 * RESOLUTIONS_A_SECOND * each / 0.5)
    assert found.queries == pytest.approx(RESOLUTIONS_A_SECOND * upstream)
    assert found.peak_queries == pytest.approx(3 * found.queries)
    assert found.hosts == -int(-found.cores // 2) + 1
    assert found.spike_cores == pytest.approx(100 * RESOLUTIONS_A_SECOND * each)
    assert found.spike_queries == pytest.approx(100 * found.queries)


def test_a_refresh_ahead_is_a_query_and_not_an_answer() -> None:
    usual, refreshed = (
        need(1.0, Shares(memory=75, store=0, upstream=25, refreshes=count), COSTS, LAW) for count in (0, 10)
    )
    assert refreshed.queries > usual.queries


def test_a_small_load_takes_one_process_and_one_host_in_reserve() -> None:
    found = need(0.0001, Shares(memory=1, store=0, upstream=0, refreshes=0), COSTS, LAW)
    assert (found.hosts, found.memory) == (2, 2**26 + default("cache_memory_bytes") + default("express_memory_bytes"))


def test_the_store_has_the_records_of_a_month() -> None:
    found = need(1.0, Shares(memory=1, store=0, upstream=0, refreshes=0), COSTS, LAW)
    assert found.records_a_day < found.records < REGISTERED
    assert found.store == found.records * RECORD_BYTES


@pytest.mark.parametrize(("load", "names"), [(0.01, 50_000), (1.0, 2_000)])
def test_a_world_of_few_names_answers_like_all_registered_ones(load: float, names: int) -> None:
    found = World(synthetic(names), LAW).simulate(usual_sizes(), load, 20_000)
    assert found.from_cache == pytest.approx(LAW.ttl_share(RESOLUTIONS_A_SECOND * load * 86_400), abs=0.02)


def test_the_same_simulation_gives_the_same_shares() -> None:
    first, second = (World(synthetic(500), LAW).simulate(usual_sizes(), 1.0, 2_000) for _ in range(2))
    assert first == second


def test_a_larger_memory_tier_answers_more() -> None:
    world, usual = World(synthetic(2_000), LAW), usual_sizes()
    small, large = (
        world.simulate(replace(usual, memory_bytes=size), 1.0, 5_000).from_memory for size in (2**28, 2**34)
    )
    assert small < large


def test_a_small_run_fills_every_table_and_a_running_proxy_answers_as_the_simulation(tmp_path: Path) -> None:
    (section,) = scale(plan(tmp_path, 120), Effort(simulated=300, checked=400, timed=60))
    assert [len(table.rows) for table in section.tables] == [13, 4, 4, 3, 3, 4, 4, 4]
    assert all(len(row) == len(table.columns) for table in section.tables for row in table.rows)
    assert all(all(row) for table in section.tables for row in table.rows)
    assert len(section.claims) == 5
    # The first two proxies have records that do not expire, and a store without evictions: nothing depends on time.
    for _, _, hits, simulated_hits, queries, simulated_queries in section.tables[-1].rows[:2]:
        assert (hits, queries) == (simulated_hits, simulated_queries)
