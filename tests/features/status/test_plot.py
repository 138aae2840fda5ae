"""The plot of 24 hours: stacked paths, their scale, the times, and when an upstream was down."""

from __future__ import annotations

from typing import Final

import pytest

from doi_proxy.assembly.features import text_packages
from doi_proxy.features.status.models import STEP, HistoryPoint, StatusSummary, UpstreamName
from doi_proxy.features.status.page import WIDTH, plot
from doi_proxy.features.status.reader import sum_outages
from doi_proxy.features.status.summary import write_count, write_number, write_sentence, write_share
from doi_proxy.system.check import MAX_EVENTS, Event, EventLog
from doi_proxy.web.languages import CORE, load_catalogues

#: Noon of a day, in seconds since the epoch.
NOON: Final = 1_699_963_200


def point(
    start: int, hits: int = 0, asked: int = 0, stale: int = 0, unverified: int = 0, down: int = 0
) -> HistoryPoint:
    answers = hits + asked + stale
    return HistoryPoint(
        start=start,
        requests=answers,
        answers=answers,
        hits=hits,
        stale=stale,
        unverified=unverified,
        questions=asked,
        down=down,
    )


def test_without_names_there_is_no_area() -> None:
    for history in ([], [point(NOON - STEP)]):
        assert (plot(history, NOON).paths, plot(history, NOON).top) == ((), 0.0)


def test_areas_are_stacked_and_the_topmost_is_painted_first() -> None:
    drawn = plot([point(NOON - STEP, hits=300, asked=300, stale=150, unverified=150)], NOON)
    column = WIDTH - 2
    assert drawn.top == 3.0
    assert dict(drawn.paths) == {
        "unverified": f"M{column} 100V0h1V100z",
        "stale": f"M{column} 100V16.67h1V100z",
        "upstream": f"M{column} 100V33.33h1V100z",
        "cache": f"M{column} 100V66.67h1V100z",
    }
    assert [band for band, _ in drawn.paths] == ["unverified", "stale", "upstream", "cache"]


def test_the_scale_is_a_round_number_that_the_highest_column_fits() -> None:
    tops = [plot([point(NOON - STEP, hits=names)], NOON).top for names in (3, 300, 301, 3_000, 90_000)]
    assert tops == [0.01, 1.0, 1.5, 10.0, 300.0]


def test_a_missing_time_is_a_gap_and_an_older_point_is_left_out() -> None:
    drawn = plot([point(NOON - number * STEP, hits=9) for number in (WIDTH + 5, 4, 3, 1)], NOON)
    assert dict(drawn.paths)["cache"].count("M") == 2
    assert sum(hour.names[0] for hour in drawn.rows) == 27


def test_the_newest_column_is_a_rate_of_the_time_that_has_passed() -> None:
    assert plot([point(NOON, hits=100)], NOON + 100.0).top == 1.0
    assert plot([point(NOON, hits=100)], NOON + 10.0).paths == ()


def test_the_labels_are_at_every_sixth_hour() -> None:
    drawn = plot([], NOON + 2 * 3_600)
    assert [label for label, _, _ in drawn.labels] == ["18:00", "00:00", "06:00", "12:00"]
    assert float(drawn.labels[-1][1].rstrip("%")) < 100 * (WIDTH - 23) / WIDTH + 1


def test_a_label_at_an_edge_is_within_the_plot() -> None:
    sides = {minutes: [side for _, _, side in plot([], NOON + 60 * minutes).labels] for minutes in (-30, 0, 30, 120)}
    assert sides[120] == ["", "", "", ""]
    assert (sides[-30][0], sides[-30][-1]) == ("first", "")
    assert (sides[30][0], sides[30][-1]) == ("", "last")


def test_columns_in_which_an_upstream_was_down_are_marked() -> None:
    history = [point(NOON - number * STEP, hits=1, down=300 * (number in (3, 4, 8))) for number in range(10, 0, -1)]
    drawn = plot(history, NOON)
    assert drawn.down == ((WIDTH - 9, 1), (WIDTH - 5, 2))
    assert [hour.down for hour in drawn.rows] == [15]


# --- The events of a service: bounded, in order, without names and clients -------------------------------------------


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


# --- Numbers and counts in the languages of the pages ----------------------------------------------------------------


PACKAGES = (CORE, *text_packages())
TEXTS = load_catalogues(("en", "de", "fr", "es"), packages=PACKAGES)


@pytest.mark.parametrize(
    ("value", "english", "german", "french"),
    [
        (0, "0", "0", "0"),
        (1.0, "1", "1", "1"),
        (9.96, "10", "10", "10"),
        (2.5, "2.5", "2,5", "2,5"),
        (1_000_000.0, "1,000,000", "1.000.000", "1\u202f000\u202f000"),
        (1_234.56, "1,235", "1.235", "1\u202f235"),
    ],
)
def test_a_number_has_the_marks_of_its_language(value: float, english: str, german: str, french: str) -> None:
    languages = ("en", "en-GB", "ja", "de", "de-CH", "es", "fr")
    expected = [english, english, english, german, german, german, french]
    assert [write_number(language, value) for language in languages] == expected


def test_a_share_is_in_per_cent() -> None:
    assert [write_share(language, 0.3333) for language in ("en", "de")] == ["33.3%", "33,3\u00a0%"]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (0.5, "0.5 requests per second 0,5 Anfragen je Sekunde 0,5 requête par seconde 0,5 solicitudes por segundo"),
        (1, "1 request per second 1 Anfrage je Sekunde 1 requête par seconde 1 solicitud por segundo"),
        (2, "2 requests per second 2 Anfragen je Sekunde 2 requêtes par seconde 2 solicitudes por segundo"),
        (46, "46 requests per second 46 Anfragen je Sekunde 46 requêtes par seconde 46 solicitudes por segundo"),
    ],
)
def test_a_rate_has_the_plural_of_its_language(rate: float, expected: str) -> None:
    assert " ".join(write_count(texts, "status.rate", rate) for texts in TEXTS.values()) == expected


def test_without_a_request_for_a_name_there_is_no_share() -> None:
    summary = StatusSummary(
        state="working",
        upstreams=[UpstreamName(name="doi.org", state="ok", down_since=None)],
        down_since=None,
        requests_per_second=0.0,
        hit_share=None,
        failed_share=0.0,
    )
    assert write_sentence(TEXTS["en"], summary) == "Working. doi.org answers. 0 requests per second."
