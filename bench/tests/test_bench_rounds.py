"""The arithmetic of rounds."""

from __future__ import annotations

import pytest

from bench.rounds import Series, interleaved, percentile, ratio

pytestmark = pytest.mark.repository


def test_every_round_measures_each_contestant_once_and_begins_with_another_one() -> None:
    asked: list[str] = []

    def measure(key: str) -> float:
        asked.append(key)
        return float(len(asked))

    found = interleaved(["a", "b", "c"], 3, measure)
    assert "".join(asked) == "abcbcacab"
    assert found["a"] == Series((1.0, 6.0, 8.0))


def test_a_series_tells_its_median_least_and_greatest_value() -> None:
    series = Series((3.0, 1.0, 2.0, 10.0))
    assert (series.median, series.low, series.high) == (2.5, 1.0, 10.0)


def test_an_empty_series_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Series(())


def test_ratios_are_taken_round_by_round() -> None:
    mine, theirs = Series((10.0, 4.0)), Series((5.0, 1.0))
    assert mine.over(theirs) == Series((2.0, 4.0))


def test_there_is_no_ratio_to_what_was_not_measured() -> None:
    assert ratio({"a": Series((1.0,))}, "a", "b") is None


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (0.999, 100.0), (1.0, 100.0)])
def test_a_percentile_is_the_nearest_rank(share: float, value: float) -> None:
    assert percentile([float(number) for number in range(1, 101)], share) == value


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="needs values"):
        percentile([], 0.5)
