"""The names in running text: where they are, how they are read, and that the pieces of a text do not matter."""

from __future__ import annotations

from itertools import chain, pairwise
from random import Random

from doi_names.find_names import MAX_NAME_CHARACTERS, FoundName, NameFinder, find_names
from tests.table import table

TEXTS = [
    # a text, the names in it
    ("no name: 10.5, 10/12 and 2020/10/may; 10.1000 5/3", ""),
    ("10.1000/182", "10.1000/182"),
    ("J (2021). AMA 23(7):550. doi:10.1001/amajethics.2021.550.", "10.1001/amajethics.2021.550"),
    ("Jones (10.1001/a.6.7), see http://dx.doi.org/10.1000/dead.", "10.1001/a.6.7 10.1000/dead"),
    ("10.1371/journal.\npone.0123456 and 10.1000/18-\n2 next", "10.1371/journal.pone.0123456 10.1000/18-2"),
    ("https://example.org/article/10.1001/abc/full?x=1", "10.1001/abc"),
    ("https://example.org/?doi=10.1000%2F182&y=1", "10.1000/182"),
    ("https://share.example/?u=https%3A%2F%2Fdoi.org%2F10.1000%2F182%3Fid%3D1", "10.1000/182"),
    ("“10.1000/182” ‘10.1000/183’, <https://doi.org/10.1000/184>", "10.1000/182 10.1000/183 10.1000/184"),
    ("full width: １０．１０００／１８２ end", "10.1000/182"),
    (r"10.1000/50:10\ensuremath{<}947::AID\ensuremath{>}2.0 10.1000\/182", "10.1000/50:10<947::AID>2.0 10.1000/182"),
    ("(10.1000/182)/S/URI 10.1000/183>>/Border", "10.1000/182 10.1000/183"),
    ("10.10O1/182 1O.1000/5 10,1000/7 10.1000?/8", "10.1001/182 10.1000/5 10.1000/7 10.1000/8"),
    ("https://doi.org/abcde or doi:10/aabbe and 10/aabbf", "10/abcde 10/aabbe"),
    ('href="https://doi.org/10.1000/182">10.1000/182</a>', "10.1000/182 10.1000/182"),
    ("10.1000/j\ufb01n 10.1000/1\u00ad82 10.1000/1\u20138", "10.1000/jfin 10.1000/182 10.1000/1-8"),
    ("1. A. 10.1000/work.\n2. B. 10.1000/b\n[3] C. 10.1000/c.\n[4] D", "10.1000/work 10.1000/b 10.1000/c"),
    ("10.1000/journal.\n182.", "10.1000/journal.182"),
    ("10.1000/1, 10.1001/2;10.1002/3", "10.1000/1 10.1001/2 10.1002/3"),
    ("10.1000/182 (accessed 2020)", "10.1000/182"),
    ("10.1000/10.1000/10.1000/", "10.1000/10.1000"),
]
WHOLE = "\n".join(text for text, _ in TEXTS)


@table(("text", "names"), TEXTS)
def test_every_name_of_a_text_is_found(text: str, names: str) -> None:
    assert [one.name.text for one in find_names(text)] == names.split()


def test_each_name_has_its_place() -> None:
    found = find_names(WHOLE)
    assert [WHOLE[one.start : one.end] for one in found] == [one.text for one in found]
    assert [one.text for one in found if one.rule == "blank"] == [
        "10.1371/journal.\npone.0123456",
        "10.1000/18-\n2",
        "10.1000/journal.\n182",
    ]
    assert all(first.end <= second.start for first, second in pairwise(found))


@table(
    ("text", "confidence", "rule"),
    [
        ("10.1000/182 ", "literal", None),
        ("10.1000/182. ", "sure", "trailing-punctuation"),
        ("１０．１０００／１８２", "sure", "full-width"),
        ("10.1000/1\u20138 ", "likely", "dash"),
    ],
)
def test_each_name_has_the_confidence_of_its_reading(text: str, confidence: str, rule: str | None) -> None:
    assert [(one.confidence, one.rule) for one in find_names(text)] == [(confidence, rule)]


def test_each_name_has_the_steps_that_led_to_it() -> None:
    (found,) = find_names("see 10.1000/a&lt;b/abstract).")
    assert (found.rule, found.rules) == ("html-entity", ("html-entity", "trailing-punctuation", "page-part"))
    assert [(other.doi.text, other.confidence) for other in found.suggestions] == [("10.1000/a<b/abstract", "likely")]


def test_the_borders_of_pieces_do_not_matter() -> None:
    text, chance = WHOLE * 3, Random(7)
    whole = find_names(text)
    for _ in range(20):
        finder, at = NameFinder(), 0
        found: list[FoundName] = []
        while at < len(text):
            size = chance.randint(1, 700)
            found += finder.feed(text[at : at + size])
            at += size
        assert [*found, *chain.from_iterable(finder.end())] == whole


def test_a_long_word_is_cut_and_its_rest_is_not_a_name() -> None:
    (found,) = find_names("10.1000/" + "a" * 3 * MAX_NAME_CHARACTERS)
    assert (found.start, found.end) == (0, MAX_NAME_CHARACTERS)


def test_a_handle_with_an_unassigned_code_point_is_not_found_as_a_doi_name() -> None:
    assert find_names("see 10.\u05ec/)") == []
    assert [one.name.text for one in find_names("see 10.1000/a\u05ec")] == ["10.1000/a"]
