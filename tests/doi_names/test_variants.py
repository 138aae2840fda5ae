"""The names that look like a name that does not exist."""

from __future__ import annotations

from doi_names.derived import MAX_VARIANTS, list_variants
from doi_names.name import HandleName
from tests.table import table


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
