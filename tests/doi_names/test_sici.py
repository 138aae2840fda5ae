"""The SICI inside a name (ANSI/NISO Z39.56-1996)."""

from __future__ import annotations

from doi_names.name import HandleName
from doi_names.repair import ends as sici
from doi_names.suggestion import read_and_suggest
from tests.table import table


@table(
    ("name", "is_cut"),
    [
        ("10.1000/0097-4679(199911)55:11<1381::AID-JCLP6>3.0.CO;2-#", False),
        ("10.1000/1520-0477(1996)077<0935:WOTWSM>2.0.CO;2", False),
        ("10.1000/1520-0477(1996)077[0935:WOTWSM]2.0.CO;2", False),
        ("10.1000/1520-0477(1996)077<0935:WOTWSM>2.0.CO;2-", True),
        ("10.1000/1520-0477(1996)077<0935:WOTWSM>2.0.", True),
        ("10.1000/1520-0477(1996)077<0935:WOTWSM>", True),
        ("10.1000/1520-0477(1996)077<0935:WOT", True),
        ("10.1000/A:1-", False),
        ("10.1000/182", False),
    ],
)
def test_a_name_that_ends_inside_a_sici_is_cut(name: str, is_cut: bool) -> None:
    assert sici.is_cut(name) is is_cut


@table(
    "whole",
    [
        # The example of the standard, then names as they are registered.
        "0363-0277(19950315)120:5<>1.0.TX;2-V",
        "1098-108X(199812)24:4<371::AID-EAT4>3.0.CO;2-U",
        "1096-9888(200006)35:6<718::aid-jms999>3.0.co;2-o",
        "1097-0231(20000615)14:11<960::aid-rcm972>3.0.co;2-#",
    ],
)
def test_the_check_character_is_computed_with_modulus_37(whole: str) -> None:
    assert sici.check_character(whole[:-1]) == whole[-1].upper()


def test_a_name_without_its_check_character_may_have_a_number_sign_or_the_computed_one() -> None:
    name = HandleName("10.1002/(SICI)1098-108X(199812)24:4<371::AID-EAT4>3.0.CO;2-")
    assert [(found.doi.text, found.rule) for found in read_and_suggest(name.text, name)[1]] == [
        (f"{name}#", "sici-check"),
        (f"{name}U", "sici-check"),
    ]


@table(
    "linked",
    [
        "10.1000/74<947:ABC>http://2.0.CO;2",
        "10.1000/74<947:ABC>[http://2.0.CO](https://t.example/4);2",
        "10.1000/74<947:ABC><http://2.0.CO;2>",
        '10.1000/74<947:ABC><a href="http://2.0.CO">2.0.CO</a>;2',
        "10.1000/74<947:ABC>[2.0.CO;2](http://2.0.CO;2)",
    ],
)
def test_the_link_that_a_program_made_of_a_control_segment_is_undone(linked: str) -> None:
    assert sici.without_link(linked) == "10.1000/74<947:ABC>2.0.CO;2"
