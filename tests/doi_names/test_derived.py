"""The names that follow by rule from other identifiers."""

from __future__ import annotations

from doi_names.derived import MAX_DERIVED, MAX_VARIANTS, RULES, DerivationRule, derive, list_variants
from doi_names.find_names import find_names
from doi_names.name import HandleName
from tests.table import table


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
