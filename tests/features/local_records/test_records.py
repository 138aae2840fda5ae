"""Which local record holds for a name, what it answers, and which records contradict each other."""

from __future__ import annotations

import pytest

from doi_names.name import HandleName
from doi_proxy.errors import PrefixDenied
from doi_proxy.features.local_records.file_text import read_records
from doi_proxy.features.local_records.records import (
    LocalRecord,
    LocalRecords,
    fill_target,
    find_conflicts,
    find_expired,
)
from doi_proxy.resolver.resolution import Resolution
from tests.table import table

NOW = 1_700_000_000.0


def parsed(*given: str) -> list[LocalRecord]:
    text = "".join(f"[[record]]\n{one}\n" for one in given)
    return [item for item in read_records(text, "a.toml") if isinstance(item, LocalRecord)]


def target(resolution: Resolution | None) -> str | None:
    return None if resolution is None else resolution.record.of_type("URL")[0].text


RECORDS = LocalRecords(
    parsed(
        'doi = "10.5072/Name"\ntarget = "http://e.org/name"',
        'doi = "10.5072/ended"\ntarget = "http://e.org/ended"\nuntil = 2023-11-13',
        'doi = "10.5072/last-day"\ntarget = "http://e.org/last"\nuntil = 2023-11-14',
        'prefix = "10.5072"\ntarget = "http://e.org/all"',
        'prefix = "10.5072.ab"\ndeny = "For tests."',
        'prefix = "10.5072.ab.7"\nupstream = "http://upstream.example"',
        'prefix = "10.5072.ab.8"\ntarget = "http://e.org/ended"\nuntil = 2000-01-01',
    )
)


@table(
    ("name", "leads_to"),
    [
        ("10.5072/name", "http://e.org/name"),
        ("10.5072/NAME", "http://e.org/name"),
        ("10.5072/name2", "http://e.org/all"),
        ("10.5072/ended", "http://e.org/all"),
        ("10.5072/last-day", "http://e.org/last"),
        ("10.5072.1/x", "http://e.org/all"),
        ("10.50721/x", None),
        ("10.5072", None),
        ("0.NA/10.5072", None),
        ("10.5072.AB.7/x", None),
        ("10.5072.ab.7.1", None),
        ("10.1000/10.5072/x", None),
        ("10.5072" + ".1" * 4000 + "/x", "http://e.org/all"),
    ],
)
def test_the_name_wins_then_the_longest_prefix(name: str, leads_to: str | None) -> None:
    assert target(RECORDS.resolve(HandleName(name), NOW)) == leads_to


@pytest.mark.parametrize("written", ["10.5555", "0.NA/10.5555", "0.na/10.5555"])
def test_the_record_of_a_prefix_is_one_name_with_and_without_its_home(written: str) -> None:
    records = LocalRecords(parsed(f'doi = "{written}"\ntarget = "http://e.org/prefix"'))
    for name in ("10.5555", "0.NA/10.5555", "0.na/10.5555"):
        assert target(records.resolve(HandleName(name), NOW)) == "http://e.org/prefix"
    for name in ("10.5555/1", "0.NA/10.5555/1", "0.NA/10.55555"):
        assert records.resolve(HandleName(name), NOW) is None


@pytest.mark.parametrize("name", ["10.5072.ab/x", "10.5072.AB.6/x", "10.5072.ab.8/x", "10.5072.ab", "0.na/10.5072.AB"])
def test_a_denied_prefix_is_refused_with_its_own_record(name: str) -> None:
    with pytest.raises(PrefixDenied, match="For tests"):
        RECORDS.resolve(HandleName(name), NOW)


@pytest.mark.parametrize(
    ("template", "name", "url"),
    [
        ("http://e.org/{suffix}", "10.1/a b/c", "http://e.org/a%20b/c"),
        ("http://e.org/{doi}", "10.1/<a>?x#y", "http://e.org/10.1/%3Ca%3E%3Fx%23y"),
        ("http://e.org/x/{suffix}", "10.1/../../admin", "http://e.org/x/..%2F..%2Fadmin"),
        ("http://e.org/?id={doi}&s={suffix}", "10.1/a&b=c", "http://e.org/?id=10.1%2Fa%26b%3Dc&s=a%26b%3Dc"),
        ("http://e.org/{other}", "10.1/{doi}", "http://e.org/{other}"),
        ("http://e.org/{suffix}", "10.1/{doi}", "http://e.org/%7Bdoi%7D"),
    ],
)
def test_a_template_cannot_leave_its_place(template: str, name: str, url: str) -> None:
    assert fill_target(template, HandleName(name)) == url


def test_two_records_of_one_name_are_a_problem_of_the_second() -> None:
    found = find_conflicts(
        parsed(
            'doi = "10.1/a"\nalias = "10.1/b"',
            'prefix = "10.1"\ndeny = "x"',
            'doi = "10.1/A"\nalias = "10.1/c"',
            'prefix = "10.1"\ntarget = "http://e.org"',
        )
    )
    assert [str(problem) for problem in found] == [
        "a.toml:7:1: 10.1/A has a record already, in line 1 of a.toml",
        "a.toml:10:1: 10.1 has a record already, in line 4 of a.toml",
    ]


def test_a_loop_of_aliases_is_a_problem() -> None:
    loop = parsed(
        'doi = "10.1/a"\nalias = "10.1/B"', 'doi = "10.1/b"\nalias = "10.1/c"', 'doi = "10.1/c"\nalias = "10.1/a"'
    )
    chain = parsed('doi = "10.2/a"\nalias = "10.1/a"', 'doi = "10.2/b"\nalias = "10.2/x"')
    assert [problem.line for problem in find_conflicts([*loop, *chain])] == [1, 4, 7]


def test_an_expired_record_is_a_warning() -> None:
    (problem,) = find_expired(parsed('doi = "10.1/a"\nalias = "10.1/b"\nuntil = 2023-11-13'), NOW)
    assert (problem.severity, problem.line) == ("warning", 1)
    assert find_expired(parsed('doi = "10.1/a"\nalias = "10.1/b"\nuntil = 2023-11-14'), NOW) == []
