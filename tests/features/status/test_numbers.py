"""Numbers and counts in the languages of the pages."""

from __future__ import annotations

import pytest

from doi_proxy.assembly.features import text_folders
from doi_proxy.features.status.models import StatusSummary, UpstreamName
from doi_proxy.features.status.summary import write_count, write_number, write_sentence, write_share
from doi_proxy.web.languages import CORE, load_catalogues

PACKAGES = (CORE, *(folder.package for folder in text_folders()))
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
        (0.5, "0.5 requests a second 0,5 Anfragen je Sekunde 0,5 requête par seconde 0,5 solicitudes por segundo"),
        (1, "1 request a second 1 Anfrage je Sekunde 1 requête par seconde 1 solicitud por segundo"),
        (2, "2 requests a second 2 Anfragen je Sekunde 2 requêtes par seconde 2 solicitudes por segundo"),
        (46, "46 requests a second 46 Anfragen je Sekunde 46 requêtes par seconde 46 solicitudes por segundo"),
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
    assert write_sentence(TEXTS["en"], summary) == "Working. doi.org answers. 0 requests a second."
