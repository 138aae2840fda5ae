"""Files of local records: what can be written, and where a mistake is reported."""

from __future__ import annotations

import msgspec
import pytest

from doi_proxy.features.local_records.file_text import MAX_RECORD_CHARACTERS, read_records
from doi_proxy.features.local_records.records import LocalAnswer, LocalRecord
from doi_proxy.resolver.resolution import Tombstone
from doi_proxy.system.toml_text import FileProblem
from handle_protocol.referral import ResponseCode
from tests.table import table


def records(text: str) -> list[LocalRecord]:
    found = list(read_records(text, "a.toml"))
    assert [item for item in found if isinstance(item, FileProblem)] == []
    return [item for item in found if isinstance(item, LocalRecord)]


def one(text: str) -> LocalRecord:
    (record,) = records(f"[[record]]\n{text}\n")
    return record


def values(record: LocalRecord) -> list[dict[str, object]]:
    assert isinstance(record.action, LocalAnswer)
    found: list[dict[str, object]] = msgspec.json.decode(record.action.answer.values)
    return found


def test_a_tombstone_has_a_reason_and_a_date() -> None:
    inline = one('doi = "10.5072/a"\ntombstone = { reason = " Withdrawn. ", date = 2026-03-01 }')
    table = one('doi = "10.5072/a"\n[record.tombstone]\nreason = "Withdrawn."\ndate = 2026-03-01T10:00:00Z')
    for record in (inline, table):
        assert isinstance(record.action, LocalAnswer)
        assert record.action.answer.code is ResponseCode.HANDLE_NOT_FOUND
        assert record.action.tombstone == Tombstone("Withdrawn.", "2026-03-01")


@pytest.mark.parametrize(
    ("until", "end"),
    [
        ("2027-12-31", 1_830_297_600),
        ("2027-12-31T12:00:00Z", 1_830_254_400),
        ("2027-12-31T12:00:00", 1_830_254_400),
        ("2027-12-31T12:00:00+02:00", 1_830_247_200),
    ],
)
def test_until_includes_its_last_day_or_is_a_time(until: str, end: float) -> None:
    assert one(f'doi = "10.5072/a"\ntarget = "https://e.org"\nuntil = {until}').until == end


#: What is written after an empty line, and the problem: line, column and the beginning of the message.
MISTAKES = {
    'x = 1\n[[record]]\ndoi = "10.1/a"\nalias = "10.1/b"': (2, 1, "'x' is outside a record"),
    '[records]\ndoi = "10.1/a"': (2, 2, "'records' is outside a record"),
    '[[record]]\ndoi = "10.1/a\nalias = "10.1/b"': (3, 14, "not valid TOML: illegal character"),
    "[[record]]\ndoi = ": (3, 7, "not valid TOML: invalid value"),
    '[[record]]\ndoi = "10.1/a"\ndoi = "10.1/a"\n': (4, 15, "not valid TOML: cannot overwrite a value"),
    '[[record]]\ndoi = "10.1/a"\n  targt = "http://e.org"': (4, 3, "unknown key 'targt'; a record has alias, deny,"),
    '[[record]]\ndoi = "10.1/a"\n[other]\nx = 1': (4, 2, "the table [other] is not part of a record"),
    '[[record]]\ndoi = "10.1/a"': (2, 1, "a record has exactly one of target, tombstone, alias,"),
    '[[record]]\ndoi = "10.1/a"\nalias = "10.1/b"\ntarget = "http://e.org"': (5, 1, "a record has exactly one of"),
    '[[record]]\nalias = "10.1/b"': (2, 1, "a record has either doi or prefix"),
    '[[record]]\ndoi = "10.1/a"\nprefix = "10.1"\nalias = "10.1/b"': (4, 1, "a record has either doi or prefix"),
    '[[record]]\ndoi = 10.1\nalias = "10.1/b"': (3, 1, "doi is not a string"),
    '[[record]]\ndoi = "https://doi.org/10.1/a"\nalias = "10.1/b"': (3, 1, "doi is not a bare DOI name"),
    '[[record]]\ndoi = "10.1/a "\nalias = "10.1/b"': (3, 1, "doi is not a bare DOI name"),
    '[[record]]\ndoi = ""\nalias = "10.1/b"': (3, 1, "doi: The request has no DOI name."),
    '[[record]]\ndoi = "title"\nalias = "10.1/b"': (3, 1, "doi is not a DOI name"),
    '[[record]]\ndoi = "10.1/\\u0001"\nalias = "10.1/b"': (3, 1, "doi: The name contains U+0001"),
    '[[record]]\ndoi = "10.1/a"\nalias = "10.1/A"': (4, 1, "alias is the name itself"),
    '[[record]]\ndoi = "10.1/a"\nalias = 5': (4, 1, "alias is not a string"),
    '[[record]]\ndoi = "10.1/a"\ntarget = "javascript:alert(1)"': (4, 1, "target is not a URL of ftp, http, https,"),
    '[[record]]\ndoi = "10.1/a"\ntarget = "repository.example.org"': (4, 1, "target is not a URL of"),
    '[[record]]\ndoi = "10.1/a"\ntarget = "https:///path"': (4, 1, "target has no host name"),
    '[[record]]\ndoi = "10.1/a"\ntarget = "https:example.org"': (4, 1, "target has no host name"),
    '[[record]]\ndoi = "10.1/a"\ntarget = "http://e.org/\\nX: y"': (4, 1, "target contains a control character"),
    f'[[record]]\ndoi = "10.1/a"\ntarget = "http://e.org/{"x" * 20_000}"': (4, 1, "target is not a URL of"),
    '[[record]]\nprefix = "10.1"\ntarget = "http://{suffix}.org/"': (4, 1, "target has a placeholder in its host name"),
    '[[record]]\nprefix = "10.1/a"\ndeny = "x"': (3, 1, "prefix is not a prefix such as 10.5072"),
    '[[record]]\ndoi = "10.1/a"\ndeny = "x"': (3, 1, "deny is for a prefix"),
    '[[record]]\nprefix = "10.1"\ndeny = ""': (4, 1, "deny needs a reason"),
    '[[record]]\nprefix = "10.1"\nupstream = "handle.example.org"': (4, 1, "upstream is not the base URL"),
    '[[record]]\nprefix = "10.1"\nupstream = "http://a b@h.org"': (4, 1, "upstream is not the base URL"),
    '[[record]]\nprefix = "10.1"\nupstream = "https:///path"': (4, 1, "upstream is not the base URL"),
    '[[record]]\nprefix = "10.1"\nupstream = "http://h.org"\nuntil = 2027-01-01': (
        5,
        1,
        "a record with upstream cannot",
    ),
    '[[record]]\ndoi = "10.1/a"\ntombstone = "gone"': (4, 1, "tombstone is not a table; write {"),
    '[[record]]\ndoi = "10.1/a"\ntombstone = { reason = "gone" }': (4, 1, "tombstone has no date; write {"),
    '[[record]]\ndoi = "10.1/a"\ntombstone = { date = 2026-03-01, why = "x" }': (
        4,
        1,
        "tombstone has no reason; write",
    ),
    '[[record]]\ndoi = "10.1/a"\n[record.tombstone]\nreason = "x"\ndate = "2026-01-01"': (
        4,
        9,
        "the date of tombstone",
    ),
    '[[record]]\ndoi = "10.1/a"\nvalues = []': (4, 1, "values is empty"),
    '[[record]]\ndoi = "10.1/a"\nvalues = [{ index = 1 }]': (4, 1, "values is not a handle record of the REST API: "),
    '[[record]]\ndoi = "10.1/a"\n[[record.values]]\ntype = "URL"': (4, 10, "values is not a handle record of"),
    '[[record]]\ndoi = "10.1/a"\nvalues = "[{"': (4, 1, "values is not JSON"),
    '[[record]]\ndoi = "10.1/a"\ntarget = "http://e.org"\nuntil = "2027-01-01"': (5, 1, "until is not a date"),
    '[[record]]\ndoi = "10.1/a"\ntarget = "http://e.org"\nnote = 5': (5, 1, "note is not a string"),
    '[[record]]\ndoi = "10.1/a"\ntarget = "http://e.org"\nlibrary = "no"': (5, 1, "library is not true or false"),
    '[[record]]\ndoi = "10.1/a"\nalias = "10.1/b"\nlibrary = false': (5, 1, "library has no effect with alias"),
    '[[record]]\nprefix = "10.1"\ndeny = "x"\nlibrary = false': (5, 1, "library has no effect with deny"),
}


@table("text", MISTAKES, ids=lambda text: MISTAKES[text][2][:40])
def test_a_mistake_has_its_line_and_column(text: str) -> None:
    line, column, message = MISTAKES[text]
    (problem,) = [item for item in read_records("\n" + text, "a.toml") if isinstance(item, FileProblem)]
    assert (problem.line, problem.column, problem.severity) == (line, column, "error")
    assert problem.message.startswith(message)
    assert str(problem).startswith(f"a.toml:{line}:{column}: {message}")


def test_each_record_is_read_by_itself() -> None:
    text = (
        '# first\r\n[[record]]\r\ndoi = "10.1/a\r\n\r\n [[record]]\r\ndoi = "10.1/b"\r\nalias = "10.1/c"\r\n[[record]]'
    )
    problem, record, empty = read_records(text, "a.toml")
    assert isinstance(problem, FileProblem) and problem.line == 3
    assert isinstance(record, LocalRecord) and (record.subject, record.line) == ("10.1/b", 5)
    assert isinstance(empty, FileProblem) and empty.line == 8


@table(
    "text",
    [
        "[[record]]\na = " + "[" * 100_000,
        "[[record]]\n" + "a." * 100_000 + "a = 1",
        "[[record]]\n[record" + ' . "a"' * 50_000 + "]",
        '[[record]]\ndoi = "' + "x" * 10_000_000 + '"',
        "\0" * 1000,
        "[[record]]\ndoi = \0",
        "[[record]]\ndoi = '''" + "[[record]]\n" * 100,
        "[[record]]\nuntil = " + "9" * 100_000,
        # Each of these takes hours with a pattern whose time grows with the square of the length.
        "[[record]]\n" + " " * 1_000_000 + "!",
        "[[record]]\n." + " " * 1_000_000 + "!" + "\n." * 20,
        '[[record]]\na = """' + '\n\\"""' * 200_000 + "." * 20,
        "[[record]]\na = " + "'\n" * 300_000 + "." * 20,
        '[[record]]\na = "' + "\\\n" * 300_000 + "." * 20,
        "[[record]]\nuntil = 9999-99-99",
        "#" + "." * 100_000 + "\nx",
    ],
    ids=lambda text: text[:24],
)
def test_a_hostile_text_is_a_problem(text: str) -> None:
    found = list(read_records(text, "a.toml"))
    assert found
    assert all(isinstance(item, FileProblem) and len(item.message) < 500 for item in found)


def test_a_line_of_an_import_is_a_record() -> None:
    lines = ['{"doi":"10.1/a","values":[]}', '{"doi":"10.1/b","values":1}', '{"doi":"10.1/c","own":1}', '{"doi":"x"']
    toml = '# own\n[[record]]\ndoi = "10.1/d"\nalias = "10.1/e"'
    first, *wrong, last = read_records("# kept\n" + "\n".join([*lines, toml]), "a.ndjson")
    assert isinstance(first, LocalRecord) and (first.subject, first.line) == ("10.1/a", 2)
    assert isinstance(last, LocalRecord) and (last.subject, last.line) == ("10.1/d", 7)
    assert [str(problem).partition(": ")[0] for problem in wrong] == [f"a.ndjson:{line}:1" for line in (3, 4, 5)]


def test_dots_in_strings_and_comments_are_not_keys() -> None:
    dots = "." * 100
    text = f"doi = '10.1/{dots}' # {dots}\ntarget = \"http://e.org/\\\"{dots}\"\nnote = '''\n{dots}'''"
    assert one(text).subject == f"10.1/{dots}"


def test_a_record_is_bounded() -> None:
    (problem,) = read_records("[[record]]\n" + "\n" * MAX_RECORD_CHARACTERS, "a.toml")
    assert isinstance(problem, FileProblem) and "longer than" in problem.message
