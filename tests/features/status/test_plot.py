"""The plots of 24 hours and of one: stacked paths, their scale, the times, and when an upstream was down."""

from __future__ import annotations

from typing import Final

from doi_proxy.features.status.models import DAY, HEIGHT, HOUR, HistoryPoint, plot

STEP: Final = DAY.step
WIDTH: Final = DAY.columns
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


def test_a_band_without_names_has_no_area() -> None:
    assert [band for band, _ in plot([point(NOON - STEP, hits=300)], NOON).paths] == ["cache"]


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


def test_a_day_at_the_limits_stays_in_the_box() -> None:
    drawn = plot([point(NOON - number * STEP, hits=10**15, stale=1) for number in range(WIDTH, 0, -1)], NOON)
    assert all(len(path) < 20 * WIDTH for _, path in drawn.paths)
    assert len(drawn.rows) <= 25
    assert HEIGHT == 100


def test_the_last_hour_has_a_column_a_minute_and_a_row_for_five() -> None:
    points = [point(NOON - 60 * number, hits=60, down=6 * (number == 1)) for number in (70, 6, 1)]
    drawn = plot(points, NOON, HOUR)
    assert (drawn.width, drawn.top) == (60, 1.0)
    assert dict(drawn.paths)["cache"] == "M53 100V0h1V100zM58 100V0h1V100z"
    assert drawn.down == ((58, 1),)
    assert [label for label, _, _ in drawn.labels] == ["11:15", "11:30", "11:45", "12:00"]
    assert [(row.start, row.names[0], row.down) for row in drawn.rows] == [(NOON - 600, 60, 0), (NOON - 300, 60, 1)]
