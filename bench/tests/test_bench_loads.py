"""What the load generators say, and on which cores they run."""

from __future__ import annotations

import pytest

from bench.loads import read_h2load, read_wrk
from bench.machine import Cores, pinned, share_out
from bench.tools import NotMeasured, need
from bench.units import read_total

pytestmark = pytest.mark.repository


def test_wrk_s_line_becomes_a_rate_and_a_count_of_failures() -> None:
    done = read_wrk("Running 2s test\n  1 threads\nBENCH 1000 2000000 3 4\n")
    assert (done.rate, done.requests, done.failed) == (500.0, 1000, 7)


def test_wrk_without_its_line_is_not_measured() -> None:
    with pytest.raises(NotMeasured, match="unable to connect"):
        read_wrk("unable to connect to 127.0.0.1:1")


def test_h2load_s_log_becomes_percentiles_in_seconds_and_a_count_of_failures() -> None:
    lines = [f"1700000000000000\t{500 if number == 100 else 302}\t{number}\n" for number in range(1, 101)]
    got = read_h2load(lines, 2.0)
    assert (got.rate, got.failed) == (50.0, 1)
    assert (got.p50, got.p99, got.p999) == pytest.approx((50e-6, 99e-6, 100e-6))


def test_an_empty_log_is_not_measured() -> None:
    with pytest.raises(NotMeasured):
        read_h2load([], 1.0)


def test_callgrind_s_total_is_read() -> None:
    assert read_total("events: Ir\nsummary: 7\n\ntotals: 12345\n") == 12345


def test_a_missing_tool_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    with pytest.raises(NotMeasured, match="h2load not found; install it with: apt-get install nghttp2-client"):
        need("h2load")


def test_server_and_load_get_different_cores_where_there_are_two() -> None:
    assert share_out({4, 1}) == Cores(server=(1,), load=(4,))
    assert share_out({4, 1}).apart


def test_one_core_is_shared() -> None:
    assert not share_out({3}).apart


def test_a_pinned_command_runs_under_taskset() -> None:
    assert pinned(["nginx"], (0, 2)) == ["taskset", "--cpu-list", "0,2", "nginx"]
