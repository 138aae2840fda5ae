"""What may have been meant by a name that does not exist."""

from __future__ import annotations

import pytest

from app.doi.name import DOIName, HandleName
from app.doi.repair import REPAIRS, Repair
from app.doi.suggestion import MAX_SUGGESTIONS, suggest, suggest_instead


def suggestions(name: HandleName) -> tuple[HandleName, ...]:
    return tuple(found.doi for found in suggest_instead(name))


LIKELIEST = [
    # the requested name, the likeliest name
    ("10.1000/182/", "10.1000/182"),
    ("10.1000/182.", "10.1000/182"),
    ("10.1000/182.,;:", "10.1000/182"),
    ("10.1000/182)", "10.1000/182"),
    ('10.1000/182"', "10.1000/182"),
    ("10.1000/182>", "10.1000/182"),
    ("10.1000/182)].", "10.1000/182"),
    ("10.1000/182 .", "10.1000/182"),
    ("10.1000/1(8)2).", "10.1000/1(8)2"),
    ("10.1000/18(2).", "10.1000/18(2)"),
    ("10.1000/182/abstract", "10.1000/182"),
    ("10.1000/182/FULL", "10.1000/182"),
    ("10.1000/182/fulltext", "10.1000/182"),
    ("10.1000/182/pdf", "10.1000/182"),
    ("10.1000/182/epdf", "10.1000/182"),
    ("10.1000/182/html", "10.1000/182"),
    ("10.1000/182/meta", "10.1000/182"),
    ("10.1000/182.pdf", "10.1000/182"),
    ("10.1000/1\u00ad82", "10.1000/182"),
    ("10.1000/1\u200b82", "10.1000/182"),
    ("10.1000/1\u20138\u22122", "10.1000/1-8-2"),
    ("10.1000/1-\u00ad\u201082", "10.1000/1-82"),
    ("10.1000/a%2Fb", "10.1000/a/b"),
    ("10.1000%2F182", "10.1000/182"),
    ("doi%3A10.1000%2F182", "10.1000/182"),
    ("doi:10.1000/182", "10.1000/182"),
    ("doi:doi:10.1000/182", "10.1000/182"),
    ("10.231/x1", "10.2310/x1"),
    ("10.1000/182 https://doi.org/10.1000/182", "10.1000/182"),
    ("10.1000/182https://doi.org/10.1000/182", "10.1000/182"),
    ("10.1000/182doi:10.1000/182", "10.1000/182"),
    ("10.1000/182; doi: 10.1000/183", "10.1000/182"),
    ("1000https://dx.doi.org/10.1000/182", "10.1000/182"),
    ("10.1000/182 PMCID: PMC123", "10.1000/182"),
    ("10.1000/ 182", "10.1000/182"),
    ("10.1000/182#page", "10.1000/182"),
    ("10.1000/182?utm_source=x", "10.1000/182"),
    ("10.1000/18\\_2", "10.1000/18_2"),
    ("10.1000/a&lt;b&gt;c", "10.1000/a<b>c"),
    ("https://example.org/article?doi=10.1000/182&year=2000", "10.1000/182"),
    ("https://example.org/doi/abs/10.1000/182", "10.1000/182"),
]


@pytest.mark.parametrize(("asked", "likeliest"), LIKELIEST)
def test_a_defect_of_copying_is_undone(asked: str, likeliest: str) -> None:
    first, *_ = suggestions(HandleName(asked))
    assert first.text == likeliest


@pytest.mark.parametrize(
    ("asked", "among"),
    [("10.1000/182/abstract/", "10.1000/182"), ("10.1000/182/full.", "10.1000/182"), ("10.231/x.", "10.2310/x")],
)
def test_two_defects_are_undone_together(asked: str, among: str) -> None:
    assert among in {name.text for name in suggestions(HandleName(asked))}


@pytest.mark.parametrize(
    "asked",
    [
        "10.1000/182",
        "10.1000/18(2)",
        "10.1000/<2>",
        "10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O",
        "10.2310/x",
        "10.12/x",
        "10.1000/pdf-a",
        "10.1000/100%",
        "11304/x/",
        "10/abcde",
        "10.1000/",
        "foo",
        "\u00ad",
    ],
)
def test_without_a_known_defect_nothing_is_suggested(asked: str) -> None:
    assert suggestions(HandleName(asked)) == ()


def test_there_are_at_most_five_distinct_suggestions_and_all_are_doi_names() -> None:
    name = HandleName("10.231/ a\u00adb\u2010c%2Fd/abstract/). https://doi.org/10.1000/182#x\\_y?z")
    found = suggestions(name)
    assert 1 < len(found) <= MAX_SUGGESTIONS
    assert len(set(found)) == len(found)
    assert name not in found
    assert all(DOIName.parse(each.text) == each for each in found)


def test_what_is_cut_from_the_end_has_a_bound() -> None:
    first, *_ = suggestions(HandleName("10.1000/182" + "." * 20))
    assert first.text == "10.1000/182...."


@pytest.mark.parametrize("repair", REPAIRS)
@pytest.mark.parametrize("text", ["10.1000/182", "10.5594/SMPTE.ST2067-21.2020", "10.1000/a(b)c[d]"])
def test_a_repair_leaves_a_sound_name_alone(repair: Repair, text: str) -> None:
    assert repair.apply(text) == text


def test_the_rule_is_the_first_repair_that_led_to_a_suggestion() -> None:
    assert [(found.doi.text, found.rule) for found in suggest("10.1000/182/pdf.")] == [
        ("10.1000/182/pdf", "trailing-punctuation"),
        ("10.1000/182", "trailing-punctuation"),
    ]


def test_text_that_is_not_a_name_has_suggestions_too() -> None:
    assert [found.doi.text for found in suggest("10.1000/182\nsecond line")] == ["10.1000/182"]


def test_the_name_that_reading_finds_is_not_suggested() -> None:
    assert suggest("doi:10.1000/182") == ()
