"""Records of the agencies' files."""

from __future__ import annotations

import pytest

from doi_proxy.features.registry.json_values import (
    LAST_DATE,
    MAX_URL_BYTES,
    InvalidRegistryRecord,
    RecordDates,
    make_record,
    parse_date,
)
from tests.table import table


def test_a_record_has_the_name_the_url_the_agency_and_the_date() -> None:
    record = make_record(" 10.5555/Ab ", " https://example.org/ \n", "Crossref", 7)
    assert (record.name.key, record.url, record.agency, record.date) == (
        "10.5555/AB",
        "https://example.org/",
        "Crossref",
        7,
    )


@table(
    ("doi", "url", "reason"),
    [
        (None, "https://example.org/", "it has no DOI name"),
        ("", "https://example.org/", "it has no DOI name"),
        ("10.5555", "https://example.org/", "'10.5555' is not a DOI name"),
        ("10.5555/a\x00b", "https://example.org/", "control character"),
        ("10.5555/a", None, "'10.5555/a' has no URL"),
        ("10.5555/a", " ", "'10.5555/a' has no URL"),
        ("10.5555/a", "https://example.org/\nX: y", "its URL contains a control character"),
        ("10.5555/a", "https://example.org/\ud800", "its URL contains a control character"),
        ("10.5555/a", "h" * (MAX_URL_BYTES + 1), f"its URL is longer than {MAX_URL_BYTES} bytes"),
        ("10.5555/a", "é" * (MAX_URL_BYTES // 2 + 1), f"its URL is longer than {MAX_URL_BYTES} bytes"),
    ],
)
def test_a_record_that_cannot_be_used_has_a_reason(doi: str | None, url: str | None, reason: str) -> None:
    with pytest.raises(InvalidRegistryRecord) as caught:
        make_record(doi, url, "", 0)
    assert reason in str(caught.value)


def test_the_longest_url_and_letters_of_every_script_are_accepted() -> None:
    assert len(make_record("10.5555/a", "é" * (MAX_URL_BYTES // 2), "", 0).url) == MAX_URL_BYTES // 2
    assert make_record("10.5555/a", "https://пример.example/ü b", "", 0).url == "https://пример.example/ü b"


def test_a_date_in_the_future_counts_as_the_latest_plausible_one() -> None:
    dates = RecordDates(default=50, latest=100)
    assert [dates.of(date) for date in (None, 7, 100, 101, -5, LAST_DATE + 1)] == [50, 7, 100, 100, 0, 100]


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("1970-01-02", 86_400),
        ("2024-07-01T00:00:00Z", 1_719_792_000),
        ("2024-07-01T00:00:00.000Z", 1_719_792_000),
        ("2024-07-01T02:00:00+02:00", 1_719_792_000),
        ("2024-07-01T00:00:00", 1_719_792_000),
        ("yesterday", None),
        ("", None),
        (None, None),
        ("0001-01-01T00:00:00+00:00", -62_135_596_800),
    ],
)
def test_dates_are_read_in_the_forms_of_iso_8601(text: str | None, date: int | None) -> None:
    assert parse_date(text) == date
