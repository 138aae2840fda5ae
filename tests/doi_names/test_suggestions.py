"""What may have been meant by a name that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doi_names.carriers import RULES, Carried, read_carrier
from doi_names.derived import parse
from doi_names.name import DOIName, HandleName
from doi_names.repair.exploration import REPAIRS, Repair
from doi_names.suggestion import MAX_SUGGESTIONS, Suggestion, read_and_suggest, read_best
from tests.table import table


def suggestions(name: HandleName) -> tuple[HandleName, ...]:
    return tuple(found.doi for found in suggest_instead(name))


def suggest_instead(name: HandleName) -> tuple[Suggestion, ...]:
    return read_and_suggest(name.text, name)[1]


def suggest(text: str, own_hosts: frozenset[str] = frozenset()) -> tuple[Suggestion, ...]:
    return parse(text, own_hosts=own_hosts).suggestions


LIKELIEST = [
    # the requested name, the likeliest name
    ("10.1000/1\u00ad82", "10.1000/182"),
    ("10.1000/1-\u00ad\u201082", "10.1000/1-82"),
    ("10.1000/a%2Fb", "10.1000/a/b"),
    ("doi:doi:10.1000/182", "10.1000/182"),
    ("10.231/x1", "10.2310/x1"),
    ("10.1000/182 https://doi.org/10.1000/182", "10.1000/182"),
    ("10.1000/182https://doi.org/10.1000/182", "10.1000/182"),
    ("10.1000/182doi:10.1000/182", "10.1000/182"),
    ("1000https://dx.doi.org/10.1000/182", "10.1000/182"),
    ("https://example.org/article?doi=10.1000/182&year=2000", "10.1000/182"),
    ("https://example.org/doi/abs/10.1000/182", "10.1000/182"),
    # Endings.
    ("10.1000/182;jsessionid=AB12.x", "10.1000/182"),
    ("10.1000/182/asset/abc-1.pdf", "10.1000/182"),
    ("10.1101/2020.03.03.972133v1.full.pdf", "10.1101/2020.03.03.972133"),
    # Markup.
    ("[the work](https://doi.org/10.1016/S0140-6736(16)30790-5)", "10.1016/S0140-6736(16)30790-5"),
    ("10.1000/a{\\textless}b{\\textgreater}c", "10.1000/a<b>c"),
    # Brackets and blanks.
    # Look-alikes.
    # Prefixes.
    # Other URLs.
    ("https://example.org/login?url=https://doi.org/10.1000/182", "10.1000/182"),
    ("https://example.org/10.1000/1-82/the-title-of-the-work-2", "10.1000/1-82"),
    ("https://example.org/10/aabbe", "10/aabbe"),
]


@table(("asked", "likeliest"), LIKELIEST)
def test_a_defect_of_copying_is_undone(asked: str, likeliest: str) -> None:
    first, *_ = suggestions(HandleName(asked))
    assert first.text == likeliest


@pytest.mark.parametrize(
    ("asked", "among"),
    [("10.1000/182/abstract/", "10.1000/182"), ("10.1000/182/full.", "10.1000/182"), ("10.231/x.", "10.2310/x")],
)
def test_two_defects_are_undone_together(asked: str, among: str) -> None:
    assert among in {name.text for name in suggestions(HandleName(asked))}


@table(
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


@table("repair", REPAIRS)
@table("text", ["10.1000/182", "10.5594/SMPTE.ST2067-21.2020", "10.1000/a(b)c[d]"])
def test_a_repair_leaves_a_sound_name_alone(repair: Repair, text: str) -> None:
    assert repair.apply(text) == text


def test_the_rule_is_the_first_repair_that_led_to_a_suggestion() -> None:
    assert [(found.doi.text, found.rule) for found in suggest("10.1000/182/pdf.")] == [
        ("10.1000/182", "trailing-punctuation"),
        ("10.1000/182/pdf", "trailing-punctuation"),
    ]


def test_text_that_is_not_a_name_has_suggestions_too() -> None:
    assert [found.doi.text for found in suggest("10.1000/182\nSecond line")] == ["10.1000/182"]


def test_the_name_that_reading_finds_is_not_suggested() -> None:
    for text in ("doi:10.1000/182", "10.1000%2F182", "https://doi.org/10.1000/182?x#y", "10/aabbe"):
        assert suggest(text) == ()


def test_a_doubtful_repair_of_a_name_is_suggested_and_not_the_reading() -> None:
    parsed = parse("10.1037//182")
    assert parsed.best is not None and (parsed.best.name.text, parsed.best.confidence) == ("10.1037//182", "literal")
    assert [found.doi.text for found in parsed.suggestions] == ["10.1037/182"]


@pytest.mark.parametrize(
    ("typed", "likeliest"),
    [
        ("https://doi.example.org/10.1000/182", "10.1000/182"),
        ("https://doi.example.org/10.1000/182/abstract", "10.1000/182"),
        ("https://doi.example.org/10/aabbe", "10/aabbe"),
        ("doi.example.org/aabbe?nols=y", "10/aabbe"),
        ("see https://doi.example.org/10/aabbe", "10/aabbe"),
        ("https://doi.example.org/doi/10/aabbe/", "10/aabbe"),
    ],
)
def test_a_url_of_this_resolver_suggests_its_name(typed: str, likeliest: str) -> None:
    assert suggest(typed, own_hosts=frozenset({"doi.example.org"}))[0].doi.text == likeliest


def test_the_names_of_a_list_come_in_its_order() -> None:
    assert [found.doi.text for found in suggest("10.1000/182 and 10.1000/183, 10.1000/184")] == [
        "10.1000/182",
        "10.1000/183",
        "10.1000/184",
    ]


def test_a_name_with_an_error_that_no_name_has_is_not_suggested() -> None:
    assert [found.doi.text for found in suggest("(10.1000/182)")] == ["10.1000/182"]


def test_a_name_with_an_error_that_some_names_have_comes_after_the_one_without() -> None:
    assert [found.doi.text for found in suggest("see 10.1000/182.pdf")] == ["10.1000/182", "10.1000/182.pdf"]


@table(
    ("typed", "name", "confidence"),
    [
        ("https://doi.org/10.1000/a%23b", "10.1000/a#b", "literal"),
        ("https://doi.org/10.1000/a%23b#section", "10.1000/a#b", "literal"),
        ("https://doi.org/10.1000%2Fa%3fb", "10.1000/a?b", "literal"),
        ("doi:10.1000/a%26b", "10.1000/a&b", "literal"),
        ("10.1000/a%23bc?utm_source=x", "10.1000/a", "likely"),
        ("10.1000/a#bc", "10.1000/a", "likely"),
        ("10.1000/a#b", "10.1000/a", "likely"),
        ("https%3A//doi.org/10.1000/a%23bc", "10.1000/a", "likely"),
    ],
)
def test_a_delimiter_that_was_encoded_is_a_part_of_the_name(typed: str, name: str, confidence: str) -> None:
    best = read_best(typed)
    assert best is not None
    assert (best.name.text, best.confidence) == (name, confidence)


def test_every_rule_is_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "suggestions.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.MULTILINE))
    others = {"label", "own-url", "sici-check", "check-character", "underscore", "line-end"}
    assert rows == {repair.rule for repair in REPAIRS} | set(RULES) | others


def test_of_a_long_text_what_surrounds_its_first_name_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def read_counted(text: str, before: str = "") -> Carried:
        read.append(len(text))
        return read_carrier(text, before)

    monkeypatch.setattr("doi_names.suggestion.read_carrier", read_counted)
    long = r"10.1000/a" + r"\{" * 30_000
    best = read_best(f"{'word ' * 20_000}doi:10.1000/a{{\\_}}b. {'word ' * 20_000}")
    assert best is not None and best.name == HandleName("10.1000/a_b")
    assert read_best(f"{long} 10.1000/182") is None
    read_and_suggest("10.1000/" + "<a" * 1_500, HandleName("10.1000/" + "<a" * 1_500))
    assert max(read) <= 2_048
