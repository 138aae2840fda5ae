"""Numbers and counts in the languages of the pages."""

from __future__ import annotations

import pytest

from app.assembly.features import text_folders
from app.features.status.numbers import write_count, write_number, write_share
from app.web.languages import CORE, load_catalogues

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
    ("count", "expected"),
    [
        (0, ["0 entries", "0 Einträge", "0 entrée", "0 entradas"]),
        (1, ["1 entry", "1 Eintrag", "1 entrée", "1 entrada"]),
        (2, ["2 entries", "2 Einträge", "2 entrées", "2 entradas"]),
    ],
)
def test_a_count_has_the_plural_of_its_language(count: int, expected: list[str]) -> None:
    assert [write_count(texts, "status.entries", count) for texts in TEXTS.values()] == expected
