"""The events of a service: bounded, shared by workers, without names and clients."""

from __future__ import annotations

from pathlib import Path

from doi_proxy.features.status.reader import sum_outages
from doi_proxy.sharing.events import MAX_EVENTS, Event, EventLog, add_event
from doi_proxy.sharing.memory import SharedMemory


def fold(*events: Event) -> list[Event]:
    kept = list[Event]()
    for event in events:
        kept = add_event(kept, event)
    return kept


def test_what_several_workers_saw_is_one_event() -> None:
    assert fold(Event("reload", 100), Event("reload", 101), Event("reload", 300)) == [
        Event("reload", 100),
        Event("reload", 300),
    ]


def test_purges_in_a_row_are_one_event_with_the_sum_of_their_entries() -> None:
    purges = [Event("purge", 100 + 5 * number, count=3) for number in range(1_000)]
    assert fold(*purges) == [Event("purge", 100, 100 + 5 * 999, count=3_000)]


def test_an_outage_begins_with_the_first_worker_and_ends_with_the_last() -> None:
    begun = fold(Event("outage", 100, detail="doi.org"), Event("outage", 97, detail="doi.org"))
    assert begun == [Event("outage", 97, detail="doi.org")]
    ended = fold(*begun, Event("outage", 100, 160, "doi.org"), Event("outage", 97, 165, "doi.org"))
    assert ended == [Event("outage", 97, 165, "doi.org")]
    assert len(fold(*ended, Event("outage", 400, detail="doi.org"))) == 2


def test_outages_of_two_upstreams_are_two() -> None:
    events = fold(Event("outage", 100, detail="doi.org"), Event("outage", 100, detail="hdl.handle.net"))
    assert len(events) == 2
    assert sum_outages(events, 50.0, 130.0) == 30.0
    assert sum_outages(fold(Event("outage", 100, 120, "a"), Event("outage", 110, 125, "b")), 0.0, 500.0) == 25.0


def test_a_failure_of_the_store_has_an_end_and_is_no_outage_of_an_upstream() -> None:
    events = fold(Event("store", 100), Event("store", 98), Event("store", 100, 160))
    assert events == [Event("store", 98, 160)]
    assert sum_outages(events, 0.0, 500.0) == 0.0


def test_a_pause_that_another_worker_obeys_is_one_event_with_the_cause_of_the_refusal() -> None:
    refused = Event("pause", 100, 130, "doi.org", cause="upstream-refused", sign="429")
    obeyed = Event("pause", 101, detail="doi.org", cause="upstream-paused")
    assert fold(obeyed, refused) == [refused]
    assert fold(refused, obeyed, Event("pause", 101, 130, "doi.org", cause="upstream-paused")) == [refused]
    assert len(fold(refused, Event("pause", 110, 120, "doi.org", cause="upstream-refused", sign="503"))) == 2


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


def test_workers_share_them(tmp_path: Path) -> None:
    memory = SharedMemory(tmp_path / "lock")
    one, other = EventLog(memory), EventLog(memory)
    one.add(Event("reload", 100))
    other.add(Event("deny", 200))
    assert one.read() == other.read() == [Event("reload", 100), Event("deny", 200)]


def test_an_outage_of_an_earlier_run_ended_with_it() -> None:
    log = EventLog(SharedMemory(None))
    log.add(Event("start", 900, detail="1.0"))
    log.restore([Event("outage", 100, detail="doi.org")], 160)
    assert log.read() == [Event("outage", 100, 160, "doi.org"), Event("start", 900, detail="1.0")]
