"""The history of 24 hours: sums of five minutes, bounded."""

from __future__ import annotations

from doi_proxy.features.metrics.history import LENGTH, RECORD_INTERVAL, STEP, History

START = 1_700_000_100.0 - 1_700_000_100.0 % STEP


def test_a_point_has_what_was_counted_in_its_five_minutes() -> None:
    history = History()
    history.record(START + 1, {"requests": 5})
    history.record(START + 100, {"requests": 7})
    history.record(START + STEP, {"requests": 10})
    assert [(point.start, point.sums["requests"]) for point in history.points] == [(START, 7), (START + STEP, 3)]


def test_a_counter_that_began_again_does_not_count_backwards() -> None:
    history = History()
    history.record(START, {"requests": 5})
    history.record(START + 1, {"requests": 1})
    assert history.points[0].sums["requests"] == 5


def test_it_keeps_24_hours() -> None:
    history = History()
    for number in range(LENGTH + 10):
        history.record(START + number * STEP, {"requests": number})
    assert len(history.points) == LENGTH
    assert history.points[-1].start - history.points[0].start == 24 * 3600 - STEP


def test_a_clock_that_was_set_back_adds_to_the_newest_point() -> None:
    history = History()
    history.record(START, {"requests": 1})
    history.record(START - 10 * STEP, {"requests": 2})
    assert [point.sums["requests"] for point in history.points] == [2]


def test_counts_since_the_last_record_are_read_and_recorded_once() -> None:
    history = History()
    assert history.is_due(START)
    history.record(START, {"requests": 3})
    for _ in range(2):
        assert [point.sums for point in history.read_now(START + 9, {"requests": 5})] == [{"requests": 5}]
    assert not history.is_due(START + RECORD_INTERVAL - 1)
    assert history.is_due(START + RECORD_INTERVAL)
    history.record(START + RECORD_INTERVAL, {"requests": 6})
    assert [point.sums for point in history.points] == [{"requests": 6}]
