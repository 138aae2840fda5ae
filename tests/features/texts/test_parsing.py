"""What a text is, decided from its form alone."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from doi_names.derived import parse
from doi_names.errors import InvalidName
from doi_names.name import MAX_NAME_BYTES
from doi_names.presentation import read_typed
from doi_proxy.features.texts.command import to_object
from tests.table import table

BASE = "https://doi.example.org/sub"


def found(text: str) -> dict[str, Any]:
    return to_object(parse(text), BASE)


def test_a_doi_name_has_every_form() -> None:
    assert found("https://doi.org/10.1000/a%C3%A4b/c") == {
        "input": "https://doi.org/10.1000/a%C3%A4b/c",
        "kind": "doi",
        "doi": "10.1000/aäb/c",
        "uri": "doi:10.1000/a%C3%A4b%2Fc",
        "url": "https://doi.example.org/sub/10.1000/a%C3%A4b/c",
        "doi_org_url": "https://doi.org/10.1000/a%C3%A4b/c",
        "prefix": "10.1000",
        "suffix": "aäb/c",
        "rules": ["percent-decoded", "url"],
        "warnings": [],
        "best": {"doi": "10.1000/aäb/c", "confidence": "literal", "rule": None},
        "suggestions": [],
        "message": None,
    }


@table(
    ("text", "name", "confidence"),
    [
        ("10.1000/182", "10.1000/182", "literal"),
        (" doi:10.1000/182 ", "10.1000/182", "literal"),
        ("https://doi.org/abcde", "10/abcde", "literal"),
        ("10/abcde", "10/abcde", "literal"),
        ("10.1000/182.", "10.1000/182", "sure"),
        ("10.1000/182)", "10.1000/182", "sure"),
        ("10.1000/182;", "10.1000/182", "sure"),
        ("10.1000/con\ufb01ned", "10.1000/confined", "sure"),
        ("doi:10.10O1/182", "10.1001/182", "sure"),
        ("10.10O1/182", "10.1001/182", "likely"),
        ("10.1000?/182", "10.1000/182", "likely"),
        ("10.1000\\/182", "10.1000/182", "sure"),
        ("10.1000/a\\ensuremath{<}b", "10.1000/a<b", "likely"),
        ("10.1000/182)/S/URI", "10.1000/182", "sure"),
        ("see 10.1000/182, p. 3", "10.1000/182", "sure"),
        ("10.1000/1\u20138", "10.1000/1-8", "likely"),
        ("10.1000/182/abstract.", "10.1000/182", "likely"),
        ("10.1000/18 2", "10.1000/18", "likely"),
        ("101000/182", "10.1000/182", "doubtful"),
    ],
)
def test_the_best_reading_says_how_certain_it_is(text: str, name: str, confidence: str) -> None:
    best = found(text)["best"]
    assert (best["doi"], best["confidence"], best["rule"] is None) == (name, confidence, confidence == "literal")


@table("text", ["hello", "and/or", "10.5", "0.NA/10.1000", ""])
def test_a_text_without_a_name_has_no_best_reading(text: str) -> None:
    assert found(text)["best"] is None


@table(
    ("name", "is_unlikely"),
    [
        ("10.1000/1", False),
        ("10.1000.10/1", False),
        ("10.978.12345/99990", False),
        ("10.abc/1", True),
        ("10.-1/1", True),
        ("10.10_38/1", True),
    ],
)
def test_a_prefix_that_no_agency_assigns_is_a_warning(name: str, is_unlikely: bool) -> None:
    assert [one["code"] for one in found(name)["warnings"]] == ["unlikely-prefix"] * is_unlikely


@table(
    ("text", "kind", "prefix", "suffix"),
    [
        ("10.1000/182", "doi", "10.1000", "182"),
        ("10.1000.10/ABC/d", "doi", "10.1000.10", "ABC/d"),
        ("10/abcde", "short_doi", "10", "abcde"),
        ("https://doi.org/abcde", "short_doi", "10", "abcde"),
        ("doi.org/10/abcde", "short_doi", "10", "abcde"),
        ("10.1000", "prefix", "10.1000", None),
        ("0.NA/10.1000", "handle", "0.NA", "10.1000"),
        ("hdl:4263537/5000", "handle", "4263537", "5000"),
        ("hdl:cnri.dlib/july95-arms", "handle", "cnri.dlib", "july95-arms"),
        ("https://hdl.handle.net/loc.natlib/x", "handle", "loc.natlib", "x"),
        ("hdl:10.1000/182", "doi", "10.1000", "182"),
        ("abcde", "not_a_doi", None, None),
        ("https://hdl.handle.net/abcde", "not_a_doi", None, None),
        ("doi:unknown", "not_a_doi", None, None),
        ("and/or", "not_a_doi", None, None),
        ("10/abc-d", "not_a_doi", None, None),
        ("10.1000/", "not_a_doi", None, None),
        ("hdl:two words/x", "not_a_doi", None, None),
        ("", "not_a_doi", None, None),
    ],
)
def test_a_text_is_of_one_kind(text: str, kind: str, prefix: str | None, suffix: str | None) -> None:
    row = found(text)
    assert (row["kind"], row["prefix"], row["suffix"]) == (kind, prefix, suffix)
    assert (row["doi"] is not None) == (row["message"] is None) == (kind in ("doi", "short_doi"))
    assert (row["url"] is not None) == (row["doi_org_url"] is not None) == (kind in ("doi", "short_doi", "prefix"))
    assert (row["uri"] is not None) == (kind == "doi")


@table(
    ("text", "rules"),
    [
        ("10.1000/182", []),
        (" 10.1000/182\n", ["trimmed"]),
        ("DOI: 10.1000/182", ["label"]),
        ("urn:doi:10.1000:182", ["label", "urn-colon"]),
        ("10.1000%2F182", ["percent-decoded"]),
        ("//10.1000/182", ["leading-slash"]),
        ("https://dx.doi.org/10.1000/182?nols=y#top", ["query", "url"]),
        ("doi: https://doi.org/10.1000/182", ["label", "url"]),
        ("%2010.1000/182 ", ["trimmed", "percent-decoded"]),
        ("doi.org/abcde", ["url", "short-doi"]),
    ],
)
def test_the_rules_are_what_was_undone_in_order(text: str, rules: list[str]) -> None:
    assert found(text)["rules"] == rules


@table(
    ("text", "message"),
    [
        ("", "The request has no DOI name."),
        ("10.1000/182\x00", "The name contains U+0000 at character 12, a control character"),
        ("\x1f10.1000/182", "The name contains U+001F at character 1, a control character"),
        ("doi:10.1000/a\x7fb", "The name contains U+007F at character 10, a control character"),
        ("10.1000/%C4", "The byte 0xC4 at character 9 is not UTF-8."),
        ("100% sure", 'The "%" at character 4 is not followed by two hexadecimal digits'),
        ("10.10 00/182", "A DOI prefix must not contain white space: U+0020 SPACE at character 6."),
        ("10.1000", "A DOI name has a slash after its prefix, at character 8."),
        ("20.500/1", 'A DOI name begins with "10." at character 1.'),
        ("abcde", 'A DOI name begins with "10." at character 1. If it is a shortDOI, write 10/abcde.'),
        ("10.1000/" + "a" * MAX_NAME_BYTES, "The name is longer than 8192 bytes of UTF-8."),
    ],
)
def test_the_message_has_the_reason_and_the_position(text: str, message: str) -> None:
    assert str(found(text)["message"]).startswith(message)


def test_a_name_with_trailing_punctuation_is_a_name_with_a_suggestion() -> None:
    row = found("https://doi.org/10.1000/182.?x=y")
    assert (row["doi"], row["suggestions"]) == (
        "10.1000/182.",
        [{"doi": "10.1000/182", "rule": "trailing-punctuation"}],
    )


def test_a_text_that_is_not_a_name_has_suggestions() -> None:
    assert [one["doi"] for one in found("see 10.1000/182 and more")["suggestions"]] == ["10.1000/182"]
    assert [one["doi"] for one in found("100% of 10.1000/182 and more")["suggestions"]] == ["10.1000/182"]


def test_without_a_base_there_is_no_url_here() -> None:
    assert to_object(parse("10.1000/182"), None)["url"] is None


@given(st.text() | st.from_regex(r"\s*(doi:|https://doi\.org/)?10\.[0-9]{2,5}/?.{0,9}"))
def test_the_name_is_the_one_that_the_form_reads(text: str) -> None:
    parsed = parse(text)
    try:
        name = read_typed(text)
    except InvalidName as error:
        assert (parsed.kind, parsed.name, parsed.message) == ("not_a_doi", None, error.message)
        return
    if parsed.name is not None and "short-doi" not in parsed.rules:
        assert parsed.name.text == name.text
    assert (parsed.kind == "doi") == name.is_doi
    assert all(one.doi != parsed.doi for one in parsed.suggestions)
