"""The repairs one by one. test_doi_suggestions.py has what they find together, test_doi_bounds.py their bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doi_names.repair import surroundings
from doi_names.repair.exploration import REPAIRS, Repair
from tests.table import table

#: Repairs that add characters: a digit or two of the prefix, or a slash.
LONGER = {"lost-zero", "cut-prefix", "missing-10", "missing-slash"}
MOST_ADDED = 3

APPLY = {repair.rule: repair.apply for repair in REPAIRS}
#: The rule of a repair, a text, and the text after it. A text that stays as it is has the same twice.
EDGES = [
    ("percent-encoding", "10.1000/100%", "10.1000/100%"),
    ("percent-encoding", "10.1000/%C4", "10.1000/%C4"),
    ("invisible-character", "10.1000/1\u200b8\x00\u00ad2\n", "10.1000/182\n"),
    ("backslash", r"https:\\doi.org\10.1000\182", "https://doi.org/10.1000/182"),
    ("backslash", r"10.1000/1\8", r"10.1000/1\8"),
    ("lost-zero", "10.23/x", "10.23/x"),
    ("lost-zero", "see 10.231/x", "see 10.2310/x"),
    ("lost-zero", "10.1000/10.231/x", "10.1000/10.231/x"),
    ("letter-for-digit", "lO.1000/1 IO.1000/1 1o.1000/1", "10.1000/1 10.1000/1 10.1000/1"),
    ("cut-prefix", ".1000/1", "10.1000/1"),
    ("cut-prefix", "10.1000/1", "10.1000/1"),
    ("digit-before", "1110.1000/1", "10.1000/1"),
    ("digit-before", "2010.1000/1", "10.1000/1"),
    ("digit-before", "20110.1000/1", "20110.1000/1"),
    ("missing-slash", "10.1000.5/x", "10.1000.5/x"),
    ("missing-slash", "10.1000@example.org", "10.1000@example.org"),
    ("double-slash", "10.1027//0269-8803.13.3.152", "10.1027//0269-8803.13.3.152"),
    ("missing-10", "11304/12345", "11304/12345"),
    ("page-part", "10.1088/1361-6633/aafcad", "10.1088/1361-6633/aafcad"),
    ("trailing-punctuation", "10.1000/182{}", "10.1000/182"),
    ("trailing-punctuation", "10.1000/18[2", "10.1000/18[2"),
    ("trailing-punctuation", "10.1021/ja001926+", "10.1021/ja001926+"),
    ("page-part", "10.1000/pdf-a", "10.1000/pdf-a"),
    ("query-or-fragment", "10.1000/182?", "10.1000/182"),
    ("query-or-fragment", "10.1000/182?1=2&a=b", "10.1000/182?1=2"),
    ("query-or-fragment", "10.1002/1:1<1::AID-A1>3.0.CO;2-#", "10.1002/1:1<1::AID-A1>3.0.CO;2-#"),
    ("query-or-fragment", "10.1207/S15327663JCP13-1&2_05", "10.1207/S15327663JCP13-1&2_05"),
    ("trailing-punctuation", "10.1000/182-", "10.1000/182-"),
    ("footnote", "10.1890/87[2445:A]2.0.CO;2", "10.1890/87[2445:A]2.0.CO;2"),
    ("next-word", "10.1000/published", "10.1000/published"),
    ("next-word", "10.5555/\u65e5\u672c", "10.5555/\u65e5\u672c"),
    ("next-cells", "10.1000/1,2", "10.1000/1,2"),
    ("next-cell", "10.1002/1:1<1::AID-A1>3.0.CO;2-1", "10.1002/1:1<1::AID-A1>3.0.CO;2-1"),
    ("dash", "10.1000/182\u2014", "10.1000/182\u2014"),
    ("version", "10.1000/2101.00001v3", "10.1000/2101.00001v3"),
    ("title", "10.1093/gbe/evu130", "10.1093/gbe/evu130"),
    ("title", "10.1000/the-title-of-the-work-2", "10.1000/the-title-of-the-work-2"),
    ("repetition", "doi:10.1000/182", "doi:10.1000/182"),
    ("repetition", "1000https://doi.org/10.1000/182", "1000https://doi.org/10.1000/182"),
    ("first-word", "see 10.1000/182", "see 10.1000/182"),
    ("first-word", "10.1000/ 182", "10.1000/ 182"),
    ("blank", "10.1000/182. 2020", "10.1000/182. 2020"),
    ("blank-inside", "10.1000/182 and", "10.1000/182 and"),
    ("name-in-text", "110.1000/182", "110.1000/182"),
    ("short-doi", "on 24/10/may", "on 24/10/may"),
    ("short-doi", "https://example.org/2020/10/may", "https://example.org/2020/10/may"),
    ("short-doi", "10/12 of them", "10/12 of them"),
    ("sici-bracket", "10.1000/74<947:ABC>2.0.CO;2", "10.1000/74[947:ABC]2.0.CO;2"),
    ("sici-bracket", "10.1002/(SICI)1<2:A>3.0.CO;2-O", "10.1002/(SICI)1<2:A>3.0.CO;2-O"),
    ("sici-bracket", "10.1000/a[1:b]", "10.1000/a[1:b]"),
]
TEXTS = st.text(alphabet=st.sampled_from("10./%2F231ab \u2013\u00ad&lt;?#\\_()[]{}doi:htp"), max_size=40) | st.text()


@table(("rule", "text", "repaired"), EDGES)
def test_a_repair_undoes_its_own_error_and_nothing_else(rule: str, text: str, repaired: str) -> None:
    assert APPLY[rule](text) == repaired


def test_every_repair_is_tried_once_and_has_a_rule_in_kebab_case() -> None:
    assert len({repair.rule for repair in REPAIRS}) == len({repair.apply for repair in REPAIRS}) == len(REPAIRS)
    assert all(repair.rule.replace("-", "").isalnum() and repair.rule == repair.rule.lower() for repair in REPAIRS)


@pytest.mark.parametrize("repair", REPAIRS, ids=lambda repair: repair.rule)
@given(text=TEXTS)
def test_a_repair_adds_few_characters_to_any_text(repair: Repair, text: str) -> None:
    most = len(text) + MOST_ADDED * (1 + text.count(".")) if repair.rule in LONGER else len(text)
    assert len(repair.apply(text)) <= most


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("https://doi.example.org/10.1000/182", "10.1000/182"),
        ("HTTP://DOI.Example.org:443/aabbe", "aabbe"),
        ("doi.example.org/10/aabbe", "10/aabbe"),
        ("https://www.example.org/doi/aabbe", "aabbe"),
        ("https://www.example.org/doing", "https://www.example.org/doing"),
        ("https://doi.example.org.example.net/x", "https://doi.example.org.example.net/x"),
        ("ftp://doi.example.org/x", "ftp://doi.example.org/x"),
        ("10.1000/182", "10.1000/182"),
    ],
)
def test_a_url_of_this_resolver_is_its_path(text: str, rest: str) -> None:
    assert surroundings.without_own_url(text, frozenset({"doi.example.org", "www.example.org/doi"})) == rest
