"""The bounds of names, as numbers: a changed bound is a changed promise."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from doi_names.carriers import read_carrier
from doi_names.derived import parse
from doi_names.errors import NameTooLong
from doi_names.name import HandleName
from doi_names.presentation import BLANKS, read_path
from doi_names.repair.ends import without_trailing_punctuation
from doi_names.repair.surroundings import with_hyphens


def test_blanks_are_white_space_spaces_separators_and_eight_more() -> None:
    """ZWSP, ZWNJ, ZWJ, word joiner, byte order mark, Mongolian vowel separator and the two noncharacters of plane 0."""
    trimmed = {c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in {"Zs", "Zl", "Zp"}}
    # The control characters with the property White_Space (The Unicode Standard, PropList.txt).
    trimmed |= set("\t\n\v\f\r\x85")
    assert set(BLANKS) == trimmed | set("\u200b\u200c\u200d\u2060\ufeff\u180e\ufffe\uffff")


def test_a_name_has_at_most_8192_bytes() -> None:
    assert len(HandleName("a" * 8_192).text) == 8_192
    assert len(HandleName("\U0001f600" * 2_048).text) == 2_048
    for text in ("a" * 8_193, "\U0001f600" * 2_048 + "a"):
        with pytest.raises(NameTooLong):
            HandleName(text)


@pytest.mark.parametrize(("letters", "is_one"), [(2, False), (3, True), (12, True), (13, False)])
def test_a_short_doi_without_its_prefix_has_3_to_12_letters(letters: int, is_one: bool) -> None:
    expected = HandleName("10/" + "a" * letters) if is_one else None
    assert HandleName("a" * letters).expand_short_doi() == expected


@pytest.mark.parametrize("length", [254, 255, 256, 257, 2_000])
def test_a_path_of_any_length_is_read_alike(length: int) -> None:
    suffix = "a" * (length - len("/10.1000/"))
    assert read_path(f"/10.1000/{suffix}".encode()).text == f"10.1000/{suffix}"


def test_of_a_text_of_more_than_512_characters_only_what_surrounds_its_first_name_is_repaired() -> None:
    for text in ("a " * 2_000 + "10.1000/182, 10.1000/183" + " a" * 2_000, "a " * 2_000 + "10.1000/182."):
        assert parse(text).suggestions[0].doi.text == "10.1000/182"
    assert parse("a " * 4_000).suggestions == ()


@pytest.mark.parametrize("length", [449, 513, 8_000])
def test_a_name_that_may_be_cut_is_not_suggested(length: int) -> None:
    assert parse("10.1000/".ljust(length, "a") + "." + " " * 100).suggestions == () or length < 512


def test_all_errors_of_a_name_are_undone_together() -> None:
    assert parse("see 10.231/a\u2013b\u00ad.pdf/).").suggestions[0].doi.text == "10.2310/a-b"


def test_at_most_16_characters_are_cut_from_the_end() -> None:
    assert without_trailing_punctuation("10.1000/182" + "." * 16) == "10.1000/182"
    assert without_trailing_punctuation("10.1000/182" + "." * 17) == "10.1000/182."


def test_a_dash_has_at_most_four_hyphens_on_either_side() -> None:
    assert with_hyphens("a----\u2013----b") == "a-b"
    assert with_hyphens("a-----\u2013-----b") == "a---b"


def test_at_most_4_backslashes_are_dropped_in_one_place() -> None:
    assert read_carrier("10.1000/18" + "\\" * 13 + "_2").text == "10.1000/18\\_2"
