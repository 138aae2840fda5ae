"""The events of a service: bounded, in order, without names and clients."""

from __future__ import annotations

from doi_proxy.features.status.reader import sum_outages
from doi_proxy.system.check import MAX_EVENTS, Event, EventLog


def fold(*events: Event) -> list[Event]:
    log = EventLog()
    for event in events:
        log.add(event)
    return log.read()


def test_two_reloads_are_two_events() -> None:
    assert fold(Event("reload", 100), Event("reload", 101)) == [Event("reload", 100), Event("reload", 101)]


def test_purges_in_a_row_are_one_event_with_the_sum_of_their_entries() -> None:
    purges = [Event("purge", 100 + 5 * number, count=3) for number in range(1_000)]
    assert fold(*purges) == [Event("purge", 100, 100 + 5 * 999, count=3_000)]


def test_an_outage_that_is_reported_again_is_one_event_and_returns_as_another_one() -> None:
    begun = fold(Event("outage", 100, detail="doi.org"), Event("outage", 100, detail="doi.org"))
    assert begun == [Event("outage", 100, detail="doi.org")]
    ended = fold(*begun, Event("outage", 100, 160, "doi.org"))
    assert ended == [Event("outage", 100, 160, "doi.org")]
    assert fold(*ended, Event("outage", 165, detail="doi.org")) == begun
    assert len(fold(*ended, Event("outage", 400, detail="doi.org"))) == 2
    assert len(fold(*begun, Event("outage", 100, detail="doi.org", cause="upstream-timeout"))) == 2


def test_outages_of_two_upstreams_are_two() -> None:
    events = fold(Event("outage", 100, detail="doi.org"), Event("outage", 100, detail="hdl.handle.net"))
    assert len(events) == 2
    assert sum_outages(events, 50.0, 130.0) == 30.0
    assert sum_outages(fold(Event("outage", 100, 120, "a"), Event("outage", 110, 125, "b")), 0.0, 500.0) == 25.0


def test_a_failure_of_the_store_has_an_end_and_is_no_outage_of_an_upstream() -> None:
    events = fold(Event("store", 100), Event("store", 100, 160))
    assert events == [Event("store", 100, 160)]
    assert sum_outages(events, 0.0, 500.0) == 0.0


def test_the_oldest_are_dropped() -> None:
    events = fold(*(Event("reload", 100 * number) for number in range(MAX_EVENTS + 5)))
    assert len(events) == MAX_EVENTS
    assert events[0].at == 500


def test_an_event_after_the_clock_was_set_back_is_the_newest() -> None:
    before = [Event("reload", 1_000 + 100 * number) for number in range(MAX_EVENTS)]
    events = fold(*before, Event("outage", 500, detail="doi.org"), Event("outage", 500, 560, "doi.org"))
    assert events == [*before[1:], Event("outage", 500, 560, "doi.org")]


def test_another_report_of_an_event_leaves_it_in_its_place() -> None:
    outage, ended = Event("outage", 100, detail="doi.org"), Event("outage", 100, 400, "doi.org")
    assert fold(outage, Event("reload", 200), ended) == [ended, Event("reload", 200)]


def test_outages_in_any_order_have_the_same_sum() -> None:
    late, early = Event("outage", 110, 125, "b"), Event("outage", 100, 120, "a")
    assert sum_outages(fold(late, early), 0.0, 500.0) == sum_outages(fold(early, late), 0.0, 500.0) == 25.0
