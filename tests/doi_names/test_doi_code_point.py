"""Code points: which of them are graphic, which are questionable, and how a message names one."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_names.name import CodePoint, first_not_graphic, questionable

#: A character, its general category, its kind (The Unicode Standard, table 2-3), and whether a request may hold it.
KINDS = [
    ("\x00", "Cc", "a control character", False),
    ("\x85", "Cc", "a control character", False),
    ("\ud800", "Cs", "a surrogate", False),
    ("\u00ad", "Cf", "a formatting character", True),
    ("\u2028", "Zl", "a formatting character", True),
    ("\u2029", "Zp", "a formatting character", True),
    ("\ue000", "Co", "a private-use character", True),
    ("\uffff", "Cn", "an unassigned code point", True),
]
#: One character of each major class that is graphic: letter, mark, number, punctuation, symbol, space.
GRAPHIC = ["a", "\u0301", "\u0661", "\u2010", "\u2212", "\u00a0", " "]


@pytest.mark.parametrize(("character", "category", "kind", "is_questionable"), KINDS)
def test_a_code_point_that_is_not_graphic_has_its_kind_and_its_place(
    character: str, category: str, kind: str, is_questionable: bool
) -> None:
    point = first_not_graphic(f"10.1/{character}{character}")
    assert point == CodePoint(character, 6)
    assert (point.category, point.kind) == (category, kind)
    assert [found.place for found in questionable(f"10.1/{character}{character}")] == [6, 7] * is_questionable


@pytest.mark.parametrize("character", GRAPHIC)
def test_letters_marks_numbers_punctuation_symbols_and_spaces_are_graphic(character: str) -> None:
    assert first_not_graphic(character) is None
    assert list(questionable(character)) == []
    assert CodePoint(character, 1).kind == "a graphic character"


@given(st.text())
def test_a_text_is_graphic_where_unicode_says_so(text: str) -> None:
    places = [n for n, c in enumerate(text, 1) if unicodedata.category(c) in {"Cc", "Cs", "Cf", "Zl", "Zp", "Co", "Cn"}]
    first = first_not_graphic(text)
    assert (first.place if first else None) == (places[0] if places else None)


@given(st.characters(codec=None, exclude_categories=()))
def test_the_notation_is_the_number_in_four_or_more_upper_case_digits(character: str) -> None:
    digits = CodePoint(character, 1).notation.removeprefix("U+")
    assert int(digits, 16) == ord(character)
    assert digits == digits.upper()
    assert len(digits) == max(4, len(f"{ord(character):X}"))


def test_a_message_has_the_notation_the_name_if_there_is_one_and_the_place() -> None:
    assert str(CodePoint("\u00ad", 3)) == "U+00AD SOFT HYPHEN at character 3"
    assert str(CodePoint("\x01", 1)) == "U+0001 at character 1"
