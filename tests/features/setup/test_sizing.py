"""What a load takes: `doi-proxy check --size`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from doi_proxy.commands.main import main
from doi_proxy.features.setup.sizing import (
    STORE_SECONDS,
    TLS_SECONDS,
    UPSTREAM_SECONDS,
    Has,
    Limit,
    Load,
    need_of,
    read_load,
)

ROOT = Path(__file__).parents[3]
DEFAULT = Has(10, 16, 1)


@pytest.mark.parametrize(
    ("text", "mean", "peak"),
    [("86400/day", 1, 3), ("10M/day", 115.74, 347.22), (" 1.5k/s ", 500, 1_500), ("2G/day", 23_148.1, 69_444.4)],
)
def test_a_load_is_a_mean_of_a_day_or_a_peak_of_a_second(text: str, mean: float, peak: float) -> None:
    assert read_load(text) == pytest.approx((mean, peak), rel=1e-4)


@pytest.mark.parametrize("text", ["", "10M", "10M/week", "-1/day", "0/day", "1e6/day", "9999999999G/day", "10m/day"])
def test_what_is_no_load_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a load; write .* such as 10M/day"):
        read_load(text)


def test_places_are_queries_times_the_seconds_of_an_answer() -> None:
    quick, slow = (need_of(Load(30, 90), answer) for answer in (0.1, 3))
    assert quick.peak_queries == slow.peak_queries
    assert slow.places == pytest.approx(3 * slow.peak_queries, abs=1)
    assert quick.places == pytest.approx(0.1 * quick.peak_queries, abs=1)


def test_connections_are_requests_times_the_seconds_for_which_the_server_keeps_an_idle_one() -> None:
    assert need_of(Load(1, 3), 0.3).connections == 3 * 75


def test_a_longer_lifetime_of_records_takes_fewer_queries_and_a_larger_store() -> None:
    day, month = (need_of(Load(100, 300), 0.3, lifetime) for lifetime in (86_400, 30 * 86_400))
    assert month.queries < day.queries
    assert month.store_bytes > day.store_bytes


def test_the_store_has_at_most_one_record_for_each_request() -> None:
    assert need_of(Load(0.001, 0.003), 0.3).records <= 0.001 * 31 * 86_400


@pytest.mark.parametrize(
    ("load", "answer", "has", "limit", "advice"),
    [
        (Load(0.1, 0.3), 0.3, DEFAULT, Limit.NOTHING, "the default settings"),
        (Load(12, 36), 0.3, DEFAULT, Limit.TOKENS, "upstream_rate = "),
        (Load(3, 9), 3, DEFAULT, Limit.PLACES, "upstream_max_concurrency = "),
        (Load(500, 1_500), 0.3, Has(5_000, 5_000, 1), Limit.PROCESSORS, "instances = "),
        (Load(14_667, 44_000), 0.3, DEFAULT, Limit.TOKENS, "a registry file at each site"),
    ],
)
def test_the_limit_that_is_exceeded_most_is_named_with_what_to_run(
    load: Load, answer: float, has: Has, limit: Limit, advice: str
) -> None:
    need = need_of(load, answer)
    assert need.first_limit(has) is limit
    assert any(one.startswith(advice) for one in need.advice(has))


def test_the_costs_are_those_that_were_measured() -> None:
    results = (ROOT / "bench/RESULTS.md").read_text(encoding="utf-8")
    for label, seconds in (("answer from the store", STORE_SECONDS), ("answer from the upstream", UPSTREAM_SECONDS)):
        assert f"| {label} | {seconds * 1e6:,.0f} µs |" in results
    performance = " ".join((ROOT / "docs/performance.md").read_text(encoding="utf-8").split())
    assert f"most sessions resumed, {TLS_SECONDS * 1e6:.0f}, " in performance


def test_the_command_compares_a_load_with_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["check", "--size", "10M/day", "--answer", "300ms", "--upstream-rate", "5000", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (status, found["answer"], found["first_limit"]) == (0, 0.3, "upstream_max_concurrency")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--size", "10M"), "'10M' is not a load"),
        (("--size", "1M/day", "--answer", "soon"), "this is not a duration"),
        (("--size", "1M/day", "--answer", "0"), "'0' is not a time over 0 s"),
        (("--answer", "1s"), "--answer is for --size"),
    ],
)
def test_a_wrong_load_is_one_line(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        sys.exit(main(["check", *arguments]))
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
