"""The addresses that deliver metadata in a format without an `Accept` header."""

from __future__ import annotations

import pytest

from doi_proxy.resolver.resolution import name_media_type

BIBTEX = "application/x-bibtex"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        # What the location of Crossref's service handle becomes for a name, and the address with a media type.
        (
            "https://api.crossref.org/v1/works/10.1126%2Fscience.169.3946.635/transform",
            "https://api.crossref.org/v1/works/10.1126%2Fscience.169.3946.635/transform/application/x-bibtex",
        ),
        (
            "https://api.crossref.org/works/10.5555/1/transform",
            "https://api.crossref.org/works/10.5555/1/transform/application/x-bibtex",
        ),
        # The same of DataCite's.
        (
            "https://data.datacite.org/10.5281%2FZENODO.21430",
            "https://data.datacite.org/application/x-bibtex/10.5281%2FZENODO.21430",
        ),
        (
            "https://data.crosscite.org/10.5281/zenodo.21430",
            "https://data.crosscite.org/application/x-bibtex/10.5281/zenodo.21430",
        ),
    ],
)
def test_the_address_of_an_agency_gets_the_media_type(url: str, expected: str) -> None:
    assert name_media_type(url, BIBTEX) == expected


@pytest.mark.parametrize(
    "url",
    [
        "https://data.medra.org/10.1430/1",
        "https://publisher.example/article",
        "https://api.crossref.org/works/10.5555/1",
        "https://api.crossref.org/works/10.5555/1/transform?mailto=a@example.org",
        "https://api.crossref.org/works/10.5555/1/transform/text/turtle",
        "https://api.crossref.org.evil.example/works/10.5555/1/transform",
        "https://data.datacite.org/application/x-bibtex/10.5281/1",
        "https://data.datacite.org/",
        "https://data.datacite.org@evil.example/10.5281/1",
    ],
)
def test_any_other_address_stays_as_it_is(url: str) -> None:
    assert name_media_type(url, BIBTEX) == url
