"""The name that a line of a reference list contains."""

from __future__ import annotations

import pytest

from doi_proxy.features.assistants.reference import read_reference
from tests.table import table

SICI = "10.1002/(SICI)1097-4571(199806)49:8<693::AID-ASI4>3.0.CO;2-O"


@table(
    ("line", "name"),
    [
        ("10.1000/182", "10.1000/182"),
        ("https://doi.org/10.1000%2F182", "10.1000/182"),
        ("https://doi.org/abcde", "10/abcde"),
        ("Smith J. (2020). Title. Journal 3(2), 10-12. https://doi.org/10.1000/182.", "10.1000/182"),
        ("[12] A. Author, “Title,” 2020, doi: 10.1000/182.", "10.1000/182"),
        ("Knuth (1984) Literate programming (doi:10.1093/comjnl/27.2.97)", "10.1093/comjnl/27.2.97"),
        ("@article{x, doi = {10.1000/182}, title={y}}", "10.1000/182"),
        ("<b>10.1000/182</b>", "10.1000/182"),
        ("[Title](https://doi.org/10.1000/182)", "10.1000/182"),
        ("https://dx.doi.org/10.1000%2F182. Accessed 2020", "10.1000/182"),
        ("https://doi.org/10.1000/182 (accessed 2020)", "10.1000/182"),
        ("see 10.1000/182.v2 there", "10.1000/182.v2"),
        ("see 10.1000/182/abstract there", "10.1000/182/abstract"),
        (f"Smith 1998. {SICI}", SICI),
        ("A title\nover two lines. 10.1000/182", "10.1000/182"),
    ],
)
def test_the_name_of_a_line_is_the_one_that_the_line_shows(line: str, name: str) -> None:
    found = read_reference(line).name
    assert found is not None
    assert found.text == name


@pytest.mark.parametrize(
    ("line", "suggested"),
    [
        ("Smith l0.1000/182 there", "10.1000/182"),
        ("110.1000/182", "10.1000/182"),
        ("https://doi.org/10.1000/\n182", "10.1000/182"),
        ("see 10.1000/182\x00 there", "10.1000/182"),
    ],
)
def test_a_name_that_needs_a_repair_is_only_suggested(line: str, suggested: str) -> None:
    reference = read_reference(line)
    assert reference.name is None
    assert reference.message is not None
    assert reference.suggestions[0].doi.text == suggested


@pytest.mark.parametrize("line", ["", " ", "no name here", "hdl:2027/x", "10.1000", "\x00"])
def test_a_line_without_a_name_has_a_reason(line: str) -> None:
    reference = read_reference(line)
    assert reference.name is None
    assert reference.message


def test_further_names_of_a_line_are_known() -> None:
    reference = read_reference("10.1000/182 and 10.1000/183")
    assert reference.name is not None
    assert [name.text for name in (reference.name, *reference.others)] == ["10.1000/182", "10.1000/183"]


def test_a_long_line_is_read_in_bounded_time() -> None:
    assert read_reference("́" * 100_000).name is None
    assert read_reference("10.1000/" * 12_000).others == ()
