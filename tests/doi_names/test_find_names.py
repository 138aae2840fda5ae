"""The names in running text, those that follow from other identifiers, and those that look like a missing one."""

from __future__ import annotations

from itertools import chain, pairwise
from random import Random

from doi_names.derived import MAX_DERIVED, MAX_VARIANTS, RULES, DerivationRule, derive, list_variants
from doi_names.find_names import MAX_NAME_CHARACTERS, FoundName, NameFinder, find_names
from doi_names.name import HandleName
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
    ("10.10O1/182 1O.1000/a5 doi:10,1000/7 10.1000?/8a", "10.1001/182 10.1000/a5 10.1000/7 10.1000/8a"),
    ("https://doi.org/abcde or doi:10/aabbe and 10/aabbf", "10/abcde 10/aabbe"),
    ('href="https://doi.org/10.1000/182">10.1000/182</a>', "10.1000/182 10.1000/182"),
    ("10.1000/j\ufb01n 10.1000/1\u00ad82 10.1000/1\u20138", "10.1000/jfin 10.1000/182 10.1000/1-8"),
    ("1. A. 10.1000/work1.\n2. B. 10.1000/b\n[3] C. 10.1000/c.\n[4] D", "10.1000/work1 10.1000/b 10.1000/c"),
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


# --- The names that follow by rule from other identifiers ------------------------------------------------------------


@table("rule", RULES, ids=lambda rule: rule.rule)
def test_the_example_of_a_rule_holds(rule: DerivationRule) -> None:
    name, text = rule.example
    assert [(found.name.text, found.rule, found.confidence) for found in derive(f"see <{text}>")] == [
        (name, rule.rule, "derived")
    ]
    assert find_names(text) == []


@table(
    ("text", "name"),
    [
        ("arXiv: hep-th/9901001v2", "10.48550/arXiv.hep-th/9901001"),
        ("https://arxiv.org/pdf/2101.00001v3.pdf", "10.48550/arXiv.2101.00001"),
        ("  eprint = {1706.03762},", "10.48550/arXiv.1706.03762"),
        ("https://www.medrxiv.org/content/early/2020/03/03/2020.03.03.20029983", "10.1101/2020.03.03.20029983"),
        ("https://www.nature.com/articles/nature12373", "10.1038/nature12373"),
        ("https://www.nature.com/articles/s41586-020-2649-2#Sec1", "10.1038/s41586-020-2649-2"),
        ("https://www.nature.com/articles/nmeth1234", "10.1038/nmeth.1234"),
        ("https://www.nature.com/articles/461171a", "10.1038/461171a"),
        ("https://peerj.com/articles/1698/", "10.7717/peerj.1698"),
        ("https://www.rfc-editor.org/info/rfc20", "10.17487/RFC0020"),
        ("https://doi.ieee.example/pii/S0140673605670113", "10.1016/S0140-6736(05)67011-3"),
    ],
)
def test_a_name_follows_from_an_identifier(text: str, name: str) -> None:
    assert [found.name.text for found in derive(text)] == [name]


@table(
    "text", ["arXiv", "zenodo.org/record/1a", "nature.com/articles/", "10.1000/182", "osf.io/abcdef", "eprint = {x}"]
)
def test_nothing_follows_from_other_texts(text: str) -> None:
    assert derive(text) == ()


def test_the_names_come_in_the_order_of_the_text_each_once_and_a_few_at_most() -> None:
    text = "zenodo.org/record/123 arXiv:2101.00001 zenodo.org/records/123"
    assert [(found.name.text, found.text) for found in derive(text)] == [
        ("10.5281/zenodo.123", "zenodo.org/record/123"),
        ("10.48550/arXiv.2101.00001", "arXiv:2101.00001"),
    ]
    assert len(derive(" ".join(f"arXiv:2101.{number:05}" for number in range(20)))) == MAX_DERIVED


# --- The names that look like a name that does not exist -------------------------------------------------------------


@table(
    ("name", "variant", "rule"),
    [
        ("10.1000/18O2", "10.1000/1802", "look-alike"),
        ("10.1000/l8l2", "10.1000/1812", "look-alike"),
        ("10.1000/modem", "10.1000/rnodem", "look-alike"),
        ("10.1000/joumal", "10.1000/journal", "look-alike"),
        ("10.1000/182", "10.1000/182/", "missing-slash-at-end"),
        ("10.1000/978-1-4939-0000-1 12", "10.1000/978-1-4939-0000-1_12", "underscore"),
        ("10.1000/ab0", "10.1000/abO", "look-alike"),
    ],
)
def test_a_variant_undoes_one_slip(name: str, variant: str, rule: str) -> None:
    assert (variant, rule) in [(found.doi.text, found.rule) for found in list_variants(HandleName(name))]


def test_there_are_few_variants_and_the_name_is_none_of_them() -> None:
    name = HandleName("10.1000/" + "O0l1rnm" * 20)
    variants = [found.doi for found in list_variants(name)]
    assert len(set(variants)) == len(variants) == MAX_VARIANTS and name not in variants


@table("text", ["10.1000", "10/abcde", "11304/182", "10.1000/" + "m" * 300])
def test_what_is_not_a_doi_name_or_too_long_has_none(text: str) -> None:
    assert list_variants(HandleName(text)) == ()
