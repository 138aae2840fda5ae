"""Counters of observations, and the histograms that a scrape shows."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from doi_proxy.features.metrics.durations import DurationCounters, assemble_histograms


def test_counters_of_observations_become_a_histogram_with_cumulative_buckets() -> None:
    registry = CollectorRegistry()
    counters = DurationCounters(registry, "wait_seconds", "Waiting.", "line", (0.5, 1.0, 10.0))
    counters.add("a", [1, 0, 2, 1], 34.0)
    counters.add("a", [1, 1, 0, 0], 1.0)
    counters.add("b", [0, 0, 0, 0], 0.0)
    (family,) = assemble_histograms(registry.collect())
    assert (family.name, family.type, family.documentation) == ("wait_seconds", "histogram", "Waiting.")
    found = [(one.name, one.labels.get("le"), one.value) for one in family.samples if one.labels["line"] == "a"]
    assert found == [
        ("wait_seconds_bucket", "0.5", 2),
        ("wait_seconds_bucket", "1.0", 3),
        ("wait_seconds_bucket", "10.0", 5),
        ("wait_seconds_bucket", "+Inf", 6),
        ("wait_seconds_count", None, 6),
        ("wait_seconds_sum", None, 35.0),
    ]
    assert {one.value for one in family.samples if one.labels["line"] == "b"} == {0}


def test_other_families_stay_as_they_are() -> None:
    registry = CollectorRegistry()
    Counter("visits", "Visits.", registry=registry).inc(3)
    (family,) = assemble_histograms(registry.collect())
    assert (family.name, family.type) == ("visits", "counter")
