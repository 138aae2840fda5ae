"""What Accept and Accept-Language ask for, as a table."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from doi_proxy.resolver.resolution import Locatt
from doi_proxy.web.languages import load_catalogues
from doi_proxy.web.negotiation import is_browser, negotiate, wants_data, write_date, write_timestamp
from tests.table import table
from tests.values import BROWSER

PROXY = "the handle system's proxy, as recorded"
CITATION = "DOI content negotiation, citation.crosscite.org"


def typed(media_type: str) -> list[Locatt]:
    return [("ctype", media_type), ("media-type", media_type)]


HTML = typed("text/html")


@table(
    ("accept", "expected", "source"),
    [
        ("application/x-bibtex", True, CITATION),
        ("application/vnd.citationstyles.csl+json", True, CITATION),
        ("text/x-bibliography; style=apa", True, CITATION),
        ("text/x-bibliography; style = apa; locale = en-US", True, CITATION),
        ("application/rdf+xml;q=0.5, application/vnd.citationstyles.csl+json;q=1.0", True, CITATION),
        ("text/turtle", True, CITATION),
        ("application/vnd.crossref.unixref+xml;q=1,application/rdf+xml;q=0.5", True, CITATION),
        ("application/xml", True, PROXY),
        ("text/plain", True, PROXY),
        ("", False, "RFC 9110, section 12.5.1: an empty field names no media type; docs/deviations.md"),
        ("text/turtle;q=abc", True, PROXY),
        ("application/json;q=0.9, text/html;q=0.5", True, PROXY),
        ("application/rdf+xml;q=0.5, */*;q=0.1", True, PROXY),
        ("application/x-bibtex, */*;q=0.9", True, PROXY),
        ("application/x-bibtex;version=1;q=0.9, text/html;level=1;q=0.8", True, PROXY),
        ("Application/X-BibTeX", True, PROXY),
        ("application/x-bibtex, */*", False, PROXY),
        ("application/json, text/html", False, PROXY),
        ("application/json;q=0", False, PROXY),
        ("application/json;q=0.5, text/html;q=0.9", False, PROXY),
        ("application/*", False, PROXY),
        ("application/pdf", False, PROXY),
        ("image/png", False, PROXY),
        ("audio/ogg", False, PROXY),
        ("video/mp4", False, PROXY),
        ("text/*", False, PROXY),
        ("text/xhtml,text/xml", False, PROXY),
        ("application/vnd.wap.xhtml+xml", False, PROXY),
        ("text/vnd.wap.wml", False, PROXY),
        ("TEXT/HTML", False, PROXY),
        (BROWSER, False, PROXY),
        ("*/*", False, PROXY),
        ("*/*;q=0.1", False, PROXY),
        ("*/*, */*;q=0.3", False, PROXY),
        (None, False, PROXY),
        # A weight may have a blank before it (RFC 9110, section 12.4.2).
        ("application/json ; q=0.9 , text/html ; q=0.5", True, "RFC 9110, section 12.4.2"),
        ("application/json;q=0.5, text/html; Q=0.9", False, "RFC 9110, section 12.4.2"),
    ],
)
def test_a_request_is_negotiated_if_nothing_a_browser_shows_is_liked_best(
    accept: str | None, expected: bool, source: str
) -> None:
    assert negotiate(accept, None, False).conneg is expected
    assert wants_data(accept) is expected
    assert source


@table(
    ("accept", "browser", "expected"),
    [
        # No Accept, or */* alone: by who asks.
        (None, False, [("http_role", "no_conneg")]),
        ("*/*", False, [("http_role", "no_conneg")]),
        ("*/*;q=0.5", False, [("http_role", "no_conneg")]),
        # An empty one says nothing.
        ("", False, [("http_role", "no_conneg")]),
        (" ", True, [*HTML, ("http_role", "browser")]),
        (None, True, [*HTML, ("http_role", "browser")]),
        ("*/*", True, [*HTML, ("http_role", "browser")]),
        # Negotiated: the types, best first, until the first wildcard, then the role.
        ("application/x-bibtex", True, [*typed("application/x-bibtex"), ("http_role", "conneg")]),
        (
            "a/a;q=0.3, b/b, */*;q=0.2, c/c;q=0.1",
            False,
            [*typed("b/b"), *typed("a/a"), ("http_role", "conneg")],
        ),
        # Parameters of a type are not part of it.
        ("text/x-bibliography; style=apa", False, [*typed("text/x-bibliography"), ("http_role", "conneg")]),
        # A page: HTML if it is listed.
        (BROWSER, False, [*HTML, ("http_role", "browser")]),
        ("text/*", False, [*HTML, ("http_role", "browser")]),
        ("application/x-bibtex, */*", False, [*HTML, ("http_role", "browser")]),
        ("application/pdf", False, [("http_role", "browser")]),
        ("application/*", False, [("http_role", "browser")]),
    ],
)  # fmt: skip
def test_headers_become_location_attributes(accept: str | None, browser: bool, expected: list[Locatt]) -> None:
    assert list(negotiate(accept, None, browser).locatts) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("de,en;q=0.5", ["de", "en"]),
        ("en;q=0.5, de", ["de", "en"]),
        ("de-AT, *", ["de-at"]),
        ("DE", ["de"]),
        ("", []),
        (None, []),
        (",,;q=1,", []),
    ],
)
def test_languages_come_last_best_first(header: str | None, expected: list[str]) -> None:
    found = negotiate("application/x-bibtex", header, False).locatts
    assert [value for key, value in found if key == "language"] == expected
    assert all(key == "language" for key, _ in found[len(found) - len(expected) :])


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64)", True),
        ("mozilla/4.0", True),
        ("Opera/9.80", True),
        ("curl/8.0", False),
        ("python-requests/2.32 Mozilla/5.0", False),
        ("", False),
        (None, False),
    ],
)
def test_a_browser_says_so_first(agent: str | None, expected: bool) -> None:
    assert is_browser(agent) is expected


def test_ten_thousand_entries_are_not_looked_at() -> None:
    header = ",".join(f"a/{number}" for number in range(10_000))
    assert len(negotiate(header, header, False).locatts) <= 2 * 30 + 1 + 30


@given(st.one_of(st.none(), st.text(max_size=80)), st.one_of(st.none(), st.text(max_size=40)), st.booleans())
@example(";q=nan", ";q=nan", False)
@example("a/b;q=1e999, text/html;q=-1e999", ",", True)
@example("q=" * 3000, None, True)
def test_any_headers_are_classified(accept: str | None, language: str | None, browser: bool) -> None:
    found = negotiate(accept, language, browser)
    roles = [value for key, value in found.locatts if key == "http_role"]
    assert roles == (["conneg"] if found.conneg else roles) and len(roles) == 1
    assert found.conneg == (roles == ["conneg"]) == wants_data(accept)


# --- Dates in the languages of the pages -----------------------------------------------------------------------------


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
