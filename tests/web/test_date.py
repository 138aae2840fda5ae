"""Dates in the languages of the pages."""

from __future__ import annotations

import pytest

from doi_proxy.web.languages import load_catalogues
from doi_proxy.web.negotiation import write_date, write_timestamp

TEXTS = load_catalogues()


@pytest.mark.parametrize(
    ("iso", "expected"),
    [
        ("2026-03-01", ["1 March 2026", "1. März 2026", "1er mars 2026", "1 de marzo de 2026"]),
        ("2025-12-31", ["31 December 2025", "31. Dezember 2025", "31 décembre 2025", "31 de diciembre de 2025"]),
    ],
)
def test_a_date_is_written_in_words(iso: str, expected: list[str]) -> None:
    assert [write_date(TEXTS[tag], iso) for tag in ("en", "de", "fr", "es")] == expected


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        ("2004-09-10T19:49:59Z", "10 September 2004, 19:49 UTC"),
        ("2004-09-10T19:49:59.123Z", "10 September 2004, 19:49 UTC"),
        ("1094845799", "10 September 2004, 19:49 UTC"),
        ("yesterday\x00", "yesterday\u2400"),
        ("2004-19-10T19:49:59Z", "2004-19-10T19:49:59Z"),
        ("0", None),
        (None, None),
    ],
)
def test_a_time_is_shown_in_utc_and_other_text_as_it_is(timestamp: str | None, shown: str | None) -> None:
    assert write_timestamp(TEXTS["en"], timestamp) == shown
