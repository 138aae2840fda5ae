"""The repairs one by one. test_doi_suggestions.py has what they find together, test_doi_bounds.py their bounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.doi import repair
from app.doi.repair import REPAIRS, with_lost_zero

Repair = Callable[[str], str]

#: A repair, a text, and the text after it.
ONE_BY_ONE: list[tuple[Repair, str, str]] = [
    (repair.without_trailing_slash, "10.1000/182//", "10.1000/182"),
    (repair.without_trailing_punctuation, "10.1000/(182)).", "10.1000/(182)"),
    (repair.without_trailing_punctuation, "10.1000/18[2", "10.1000/18[2"),
    (repair.without_page_part, "10.1000/182/Abstract", "10.1000/182"),
    (repair.without_page_part, "10.1000/182/abstract/x", "10.1000/182/abstract/x"),
    (repair.with_hyphens, "10.1000/1\u2013\u00ad8\u22122", "10.1000/1-8-2"),
    (repair.without_questionable, "10.1000/1\u200b8\u00ad2", "10.1000/182"),
    (repair.decode_again, "10.1000%2F182", "10.1000/182"),
    (repair.decode_again, "10.1000/100%", "10.1000/100%"),
    (repair.with_lost_zero, "10.231/x", "10.2310/x"),
    (repair.with_lost_zero, "10.23/x", "10.23/x"),
    (repair.before_repetition, "10.1000/182 (doi:10.1000/182", "10.1000/182"),
    (repair.before_repetition, "doi:10.1000/182", "doi:10.1000/182"),
    (repair.first_word, "  10.1000/182 PMCID: 1", "10.1000/182"),
    (repair.without_blanks, "10.1000/ 18- 2 3", "10.1000/18-2 3"),
    (repair.without_html_entities, "10.1000/a&lt;b&amp;c", "10.1000/a<b&c"),
    (repair.without_query_or_fragment, "10.1000/182?", "10.1000/182"),
    (repair.without_query_or_fragment, "10.1000/182?1=2&a=b", "10.1000/182?1=2"),
    (repair.without_latex_escapes, r"10.1000/1\_8\2", r"10.1000/1_8\2"),
    (repair.name_inside, "see 10.1000/182?x", "10.1000/182"),
    (repair.name_inside, "110.1000/182", "110.1000/182"),
]
TEXTS = st.text(alphabet=st.sampled_from("10./%2F231ab \u2013\u00ad&lt;?#\\_()[]doi:htp"), max_size=40) | st.text()


@pytest.mark.parametrize(("function", "text", "repaired"), ONE_BY_ONE)
def test_a_repair_undoes_its_own_error_and_nothing_else(function: Repair, text: str, repaired: str) -> None:
    assert function(text) == repaired


def test_every_repair_has_an_example_and_is_tried_once() -> None:
    assert {function for function, text, repaired in ONE_BY_ONE if text != repaired} == {each.apply for each in REPAIRS}
    assert len({each.rule for each in REPAIRS}) == len(REPAIRS)


@pytest.mark.parametrize("function", [each.apply for each in REPAIRS])
@given(text=TEXTS)
def test_a_repair_of_any_text_is_a_text_that_is_longer_by_a_lost_zero_at_most(function: Repair, text: str) -> None:
    assert len(function(text)) <= len(text) + (function is with_lost_zero)
