"""`doi-proxy resolve` with files of references and running text: formats by name, places, and the exit status."""

from __future__ import annotations

import json

import pytest

from tests.features.lists.command_bench import URL, Bench

pytestmark = pytest.mark.anyio

TEXT = "Smith (2020). A title. https://doi.org/10.5555/\n1.\nJones, without one.\nSee 10.5555/2 and doi:10.5555/3.\n"


def put(bench: Bench) -> None:
    for number in range(1, 4):
        bench.upstream.put(f"10.5555/{number}", url=URL)


async def test_every_name_of_running_text_is_resolved(bench: Bench) -> None:
    put(bench)
    ended = await bench.run(bench.write("thesis.txt", TEXT), "--extract")
    rows = [json.loads(line) for line in ended.output.splitlines()]
    assert ended.status == 0
    assert [(row["doi"], row["line"]) for row in rows] == [("10.5555/1", 1), ("10.5555/2", 4), ("10.5555/3", 4)]
    assert "names" in ended.errors or "rows" in ended.errors


async def test_extraction_is_proposed_where_most_lines_are_not_names(bench: Bench) -> None:
    put(bench)
    proposal = "for running text, add --extract"
    assert proposal in (await bench.run(bench.write("text.txt", "One.\nTwo.\nThree.\n10.5555/1\n"))).errors
    assert proposal not in (await bench.run(bench.write("list.txt", "10.5555/1\n10.5555/2\n10.5555/3\nx\n"))).errors
    assert proposal not in (await bench.run(bench.write("a.bib", "@misc{a}\n@misc{b}\n@misc{c}\n"))).errors


async def test_an_entry_without_a_doi_fails_only_a_strict_run(bench: Bench) -> None:
    put(bench)
    file = bench.write("a.bib", "@book{a, title = {A book}}\n@misc{b, doi = {10.5555/1}}\n")
    assert (await bench.run(file)).status == 0
    assert (await bench.run(file, "--strict")).status == 1
    assert (await bench.run(bench.write("list.txt", "10.5555/1\nhello\n"))).status == 1
    assert (await bench.run(file, *bench.resumable(file)[1:])).status == 0
    missing = bench.write("b.bib", "@book{a, title = {A book}}\n@misc{b, doi = {10.5555/none}}\n")
    assert (await bench.run(missing)).status == 1


async def test_the_name_of_the_output_says_its_format(bench: Bench) -> None:
    put(bench)
    names = bench.write("list.txt", "10.5555/1\n")
    for name, start in (("rows.csv", "input,doi,"), ("rows.NDJSON", '{"input"'), ("rows.out", '{"input"')):
        assert (await bench.run(names, "-o", bench.folder / name)).status == 0
        assert (bench.folder / name).read_text("utf-8").startswith(start)
    ended = await bench.run(names, "-o", bench.folder / "other.csv", "--output-format", "jsonl")
    assert (ended.status, "the name says csv, and --output-format says jsonl" in ended.errors) == (2, True)


async def test_an_entry_that_is_wrong_has_its_place_and_its_key(bench: Bench) -> None:
    put(bench)
    file = bench.write("refs.bib", "@misc{good, doi = {10.5555/1}}\n@misc{bad,\n  note = {doi:10.5555/none}}\n")
    ended = await bench.run(file, "--output-format", "concise")
    assert ended.output == f"{file}:3: not_found 10.5555/none (bad): Found in the field “note”.\n"
