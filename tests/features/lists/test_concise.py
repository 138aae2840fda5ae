"""`--output-format concise`: a line for each row that is not good, as linters write it."""

from __future__ import annotations

import pytest

from doi_proxy.list_formats.writing import ConciseWriter
from tests.features.lists.command_bench import Bench

pytestmark = pytest.mark.anyio

CONCISE = ("--output-format", "concise")


async def test_wrong_entries_of_several_lists_are_shown_with_their_places(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url="https://example.org/")
    references = bench.write(
        "a.bib",
        "@book{good,\n doi={10.5555/a}\n}\n@book{dot,\n doi = {10.5555/a.}\n}\n@book{none,\n title={x}\n}\n",
    )
    names = bench.write("b.txt", "10.5555/a\n10.5555/b\n")
    ended = await bench.run(references, names, *CONCISE)
    assert ended.status == 1
    assert ended.output.splitlines() == [
        f"{references}:5: not_found 10.5555/a. (dot); did you mean 10.5555/a?",
        f"{references}:7: not_a_doi x (none): This entry has no DOI.",
        f"{names}:2: not_found 10.5555/b",
    ]


async def test_names_among_the_arguments_have_no_place(bench: Bench) -> None:
    ended = await bench.run("10.5555/b", *CONCISE)
    assert (ended.status, ended.output) == (1, "not_found 10.5555/b\n")


@pytest.mark.parametrize("output_format", ["concise", "urls"])
async def test_the_members_of_a_line_cannot_be_chosen(bench: Bench, output_format: str) -> None:
    ended = await bench.run("10.5555/b", "--output-format", output_format, "--fields", "url")
    assert (ended.status, ended.output) == (2, "")
    assert f"{output_format} has no choice of members; leave out --fields" in ended.errors


@pytest.mark.parametrize("has_colour", [True, False])
def test_only_a_terminal_gets_colour_and_no_text_can_add_any(has_colour: bool) -> None:
    writer = ConciseWriter(lambda: "a\x1b[2J.txt", (), has_colour=has_colour)
    row = {"verdict": "not_found", "input": "\x1b[2J", "line": 1, "key": "\x1b", "message": "\x1b", "suggestions": None}
    line = writer.write([row]).decode()
    assert ("\x1b[1m" in line and "\x1b[31m" in line) is has_colour
    assert "\x1b[2J" not in line and line.count("\x1b") == (4 if has_colour else 0)
