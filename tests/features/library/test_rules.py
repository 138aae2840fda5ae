"""A file of library rules: its problems with their lines, its bounds, and the expectations that it carries."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from doi_proxy.features.library.rules import LIMITS, MAX_NETWORKS, read_rules
from tests.table import table

EXAMPLE: Final = Path(__file__).parents[3] / "config/library-rules.toml"
SERVICE: Final = '[[service]]\nname = "ezproxy"\nlabel = "EZproxy"\nkind = "ezproxy"\nurl = "https://e.example/login"\n'
EXPECT: Final = '[[expect]]\ndoi = "10.1/2"\ntarget = "https://p.example/"\n'


def problems(text: str) -> list[str]:
    return [str(one) for one in read_rules({"rules.toml": text})[1]]


def test_the_shipped_example_meets_its_expectations() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    rules, found = read_rules({EXAMPLE.name: text})
    assert (len(rules.services), len(rules.rules), found) == (3, 3, [])


@table(
    ("text", "problem"),
    [
        ("exempt = [\n", "rules.toml:1:1: not valid TOML"),
        ('\nexmpt = ["a.example"]\n', "rules.toml:2:1: unknown key 'exmpt'"),
        ('exempt = "arxiv.org"\n', "rules.toml:1:1: exempt is not a list"),
        ('exempt = ["*.arxiv.org"]\n', "rules.toml:1:1: '*.arxiv.org' in exempt is not a host"),
        ('exempt = ["https://arxiv.org/"]\n', "is not a host such as example.org"),
        ('exempt = ["a\\r\\nb"]\n', "is not a host"),
        (f'exempt = ["{"a." * 126}io"]\n', "in exempt is not a host"),
        ("exempt = []\n", "exempt is empty"),
        ('[rule]\nservice = "none"\n', "unknown key 'rule'"),
        ("[[rule]]\n", "rules.toml:1:1: service is missing"),
        ('\n[[rule]]\nservice = "proxy"\n', "rules.toml:3:1: service is 'proxy'; it is the name of a [[service]]"),
        ('[[rule]]\nservice = "none"\nhost = ["a.example"]\n', "rules.toml:3:1: unknown key 'host'"),
        ('[[rule]]\nservice = "none"\nnetworks = ["192.0.2.1/24"]\n', "rules.toml:3:1: '192.0.2.1/24' in networks"),
        ('[[rule]]\nservice = "none"\nnetworks = ["campus"]\n', "'campus' in networks is not a network"),
        ('[[rule]]\nservice = "none"\nprefixes = ["1016"]\n', "'1016' in prefixes is not a prefix such as 10.1016"),
        ('[[rule]]\nservice = "none"\nlanguages = ["(a+)+$"]\n', "'(a+)+$' in languages is not a language tag"),
        ('[[rule]]\nservice = "none"\n[other]\n', "rules.toml:3:2: the table [other] is not known"),
        ('[[service]]\nname = "a"\nlabel = "A"\nkind = "sfx"\n', "rules.toml:4:1: kind is 'sfx'; it is one of ezproxy"),
        ('[[service]]\nname = "none"\nlabel = "A"\nkind = "libkey"\nlibrary = "1"\n', "name is 'none'"),
        ('[[service]]\nname = "A b"\nlabel = "A"\nkind = "libkey"\nlibrary = "1"\n', "rules.toml:2:1: name is 'A b'"),
        ('[[service]]\nname = "a"\nlabel = ""\nkind = "libkey"\nlibrary = "1"\n', "label is not a text of one line"),
        ('[[service]]\nname = "a"\nlabel = "A"\nkind = "libkey"\nlibrary = 1\n', "library is not a text"),
        ('[[service]]\nname = "a"\nlabel = "A"\nkind = "libkey"\nurl = "https://a.example/"\n', "unknown key 'url'"),
        (SERVICE + SERVICE, "rules.toml:7:1: there is another service with the name 'ezproxy'"),
        (SERVICE + SERVICE.replace('"ezproxy"\nlabel', '"b"\nlabel'), "another service with the same URL"),
        (EXPECT, "an expectation has either service or location"),
        (EXPECT + 'service = "x"\n', "service is 'x'"),
        (EXPECT + 'service = "none"\nclient = "192.0.2.0/24"\n', "client is not an address such as 192.0.2.7"),
        (EXPECT.replace("https:", "data:") + 'service = "none"\n', "target is not a URL"),
        (EXPECT.replace("10.1/2", "") + 'service = "none"\n', "doi is not a text of one line"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, problem: str) -> None:
    found = problems(text)
    assert len(found) == 1
    assert problem in found[0]


def test_every_mistake_is_named_and_not_the_first_alone() -> None:
    found = problems('[[rule]]\nservice = "a"\n\n[[rule]]\nservice = "b"\n[[rule]]\nservice = \n')
    assert [one.split(": ")[0] for one in found] == ["rules.toml:2:1", "rules.toml:5:1", "rules.toml:7:11"]


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        ('service = "ezproxy"', None),
        ('location = "https://e.example/login?url=https://p.example/"', None),
        ('service = "ezproxy"\nchoice = "ezproxy"', None),
        ('service = "none"\nchoice = "none"', None),
        ('service = "none"\nclient = "192.0.2.7"', None),
        ('service = "none"', "rules.toml:9:1: expected service 'none', but the rules lead to 'ezproxy'"),
        ('location = "https://p.example/"', "but the rules lead to 'https://e.example/login?url=https://p.example/'"),
    ],
)
def test_an_expectation_that_is_not_met_is_a_problem(expected: str, problem: str | None) -> None:
    text = SERVICE + '[[rule]]\nservice = "ezproxy"\noutside = ["192.0.2.0/24"]\n' + EXPECT + expected
    found = problems(text)
    assert len(found) == (0 if problem is None else 1)
    assert problem is None or problem in found[0]


def test_an_expectation_can_name_the_agency_of_its_work() -> None:
    text = SERVICE + '[[rule]]\nservice = "ezproxy"\nagencies = ["Crossref"]\n' + EXPECT
    assert problems(f'{text}service = "ezproxy"\nagency = "Crossref"\n') == []
    assert problems(f'{text}service = "none"\nagency = "DataCite"\n') == []
    assert problems(f'{text}service = "none"\n') == []


@table(
    "text",
    [
        "a." * 100_000 + "a = 1\n",
        "x = " + "[" * 100_000 + "\n",
        "[[rule]]\nservice = " + "[" * 100_000 + "\n",
        "\x00" * 1_000,
        '"' * 100_000,
        "x = 1e" + "9" * 10_000 + "\n",
        '[[rule]]\nservice = "none"\nhosts = [' + '"a.example",' * 6_000 + "]\n",
        '[[rule]]\nservice = "none"\nnetworks = [' + '"192.0.2.7",' * 1_001 + "]\n",
        '[[rule]]\nservice = "none"\n' * (LIMITS["rule"] + 1),
        SERVICE * (LIMITS["service"] + 1),
        "[[rule]]\n" * 5_000,
    ],
    ids=range(11),
)
def test_a_hostile_file_is_refused(text: str) -> None:
    found = problems(text)
    assert 0 < len(found) <= 2 + LIMITS["rule"]


def test_a_file_has_as_many_networks_as_the_limit() -> None:
    text = '[[rule]]\nservice = "none"\nnetworks = [' + '"192.0.2.7",' * MAX_NETWORKS + "]\n"
    assert problems(text) == []
