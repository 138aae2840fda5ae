"""`doi-proxy resolve` as a process: rows, exit status, going on after signals, pipes and servers."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.system import progress
from tests.features.bundles.test_store_commands import serving
from tests.features.lists.command_bench import PATIENCE, URL, Bench, end_of
from tests.features.lists.list_server import BatchServer
from tests.table import table

# The commands are synchronous: they run in a thread, over sockets of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

#: Constants of the program that tests change.
PROGRESS_INTERVAL: Final = "doi_proxy.system.progress.INTERVAL"
REQUEST_NAMES, MOST_TRIES, ROW_TIMEOUT = (
    f"doi_proxy.features.lists.server_client.{name}" for name in ("REQUEST_NAMES", "MOST_TRIES", "ROW_TIMEOUT")
)


# --- Rows and exit status -----------------------------------------------------------------------------------------


async def test_each_input_has_a_row_and_each_name_one_query(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url=URL)
    ended = await bench.run(
        bench.write("list.txt", "10.5555/a\n# comment\n\nhttps://doi.org/10.5555/A\nx\n10.5555/b\n")
    )
    assert [(row["input"], row["doi"], row["verdict"], row["url"]) for row in ended.rows] == [
        ("10.5555/a", "10.5555/a", "resolved", URL),
        ("https://doi.org/10.5555/A", "10.5555/A", "resolved", URL),
        ("x", None, "not_a_doi", None),
        ("10.5555/b", "10.5555/b", "not_found", None),
    ]
    assert ended.errors == "4 rows: resolved 2, not_found 1, not_a_doi 1\n"
    assert ended.status == 1
    assert (bench.upstream.queries("10.5555/a"), bench.upstream.queries("10.5555/b")) == (1, 1)


async def test_a_name_prints_its_target(bench: Bench) -> None:
    bench.upstream.put("10.5555/a", url=URL)
    ended = await bench.run("https://doi.org/10.5555/A")
    assert (ended.status, ended.output, ended.errors) == (0, f"{URL}\n", "")
    ended = await bench.run("10.5555/a", "10.5555/b")
    assert (ended.status, ended.output, ended.errors) == (1, f"{URL}\n\n", "10.5555/b: not_found\n")
    ended = await bench.run("10.5555/a", "--fields", "doi,verdict")
    assert ended.rows == [{"doi": "10.5555/a", "verdict": "resolved"}]
    lists = bench.write("a.csv.gz", gzip.compress(b"title,DOI\nx,10.5555/b\n")), bench.write("list.txt", "10.5555/a\n")
    ended = await bench.run("10.5555/b", *lists)
    assert [row["verdict"] for row in ended.rows] == ["not_found", "not_found", "resolved"]


async def test_the_exit_status_is_0_if_all_names_resolve_and_2_for_wrong_use(bench: Bench) -> None:
    path = bench.numbered(2)
    assert (await bench.run(path)).status == 0
    wrong: tuple[tuple[tuple[str | Path, ...], str], ...] = (
        (("none.txt",), "none.txt: this is neither a file nor a DOI name; check the path or the name"),
        (("10.1000",), "10.1000: this is neither a file nor a DOI name; check the path or the name"),
        (("10.1000/" + 9_000 * "a",), f"{'10.1000/' + 192 * 'a'}: this is neither a file nor a DOI name;"),
        ((".",), ".: this is a folder; name a file in it"),
        (("10.1000/182", ""), "an argument is empty; name a DOI or a file, or - for standard input"),
        ((path, "--fields", "doi,colour"), "--fields: 'colour' is not one of input, doi"),
    )
    for arguments, message in wrong:
        ended = await bench.run(*arguments)
        assert (ended.status, message in ended.errors, ended.output) == (2, True, ""), ended.errors


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("csv", "doi,verdict\r\n10.5555/0,resolved\r\n10.5555/none,not_found\r\n"),
        ("jsonl", '{"doi":"10.5555/0","verdict":"resolved"}\n{"doi":"10.5555/none","verdict":"not_found"}\n'),
        ("table", f"{'DOI':40}  VERDICT\n{'10.5555/0':40}  resolved\n{'10.5555/none':40}  not_found\n"),
        ("urls", f"{URL}0\n\n"),
    ],
)
async def test_the_form_of_the_rows_can_be_chosen(bench: Bench, output: str, expected: str) -> None:
    bench.numbered(1)
    path = bench.write("list.txt", "10.5555/0\n10.5555/none\n")
    fields = () if output == "urls" else ("--fields", "doi,verdict")
    ended = await bench.run(path, "--output-format", output, *fields)
    assert ended.output == expected


async def test_a_table_has_suggestions_if_they_were_wanted(bench: Bench) -> None:
    bench.numbered(1)
    path = bench.write("list.txt", "see 10.5555/0\n")
    tables = [(await bench.run(path, "--output-format", "table", *more)).output for more in ((), ("--suggest",))]
    assert ["SUGGESTIONS" in table for table in tables] == [False, True]


@pytest.mark.process
async def test_standard_input_is_resolved_while_it_arrives(bench: Bench) -> None:
    bench.numbered(2)
    process = await bench.start("-", "--column", "Name", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"Name;Year\n10.5555/0;2020\n")
    first = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
    assert json.loads(first)["url"] == f"{URL}0"
    ended = await end_of(process, b"10.5555/1;2021\n")
    assert [row["url"] for row in ended.rows] == [f"{URL}1"]


async def test_suggestions_literal_names_and_the_cache_alone_can_be_chosen(bench: Bench) -> None:
    bench.upstream.put("10.5555/100%25", url=URL)
    path = bench.write("list.txt", "10.5555/100%25\n")
    assert (await bench.run(path, "--encoding", "literal")).rows[0]["verdict"] == "resolved"
    assert (await bench.run(path)).rows[0]["doi"] == "10.5555/100%"
    asked = bench.upstream.queries()
    cached = await bench.run(bench.write("other.txt", "10.5555/new\nsee 10.5555/x\n"), "--only-cached", "--suggest")
    assert [row["verdict"] for row in cached.rows] == ["unverified", "not_a_doi"]
    assert cached.rows[1]["suggestions"][0]["doi"] == "10.5555/x"
    assert bench.upstream.queries() == asked


async def test_a_list_that_cannot_be_read_to_its_end_ends_after_the_rows_before(bench: Bench) -> None:
    bench.numbered(1)
    ended = await bench.run(bench.write("list.json", '["10.5555/0", '))
    assert [row["input"] for row in ended.rows] == ["10.5555/0"]
    assert (ended.status, "list.json: The array is not complete" in ended.errors) == (2, True)


@pytest.mark.process
async def test_a_reader_that_leaves_ends_the_program_quietly(bench: Bench) -> None:
    path = bench.numbered(300)
    process = await bench.start(path)
    assert process.stdout is not None
    await process.stdout.readline()
    process.stdout._transport.close()  # type: ignore[attr-defined]
    assert process.stderr is not None
    errors = await asyncio.wait_for(process.stderr.read(), PATIENCE)
    await asyncio.wait_for(process.wait(), PATIENCE)
    assert errors == b""


# --- Going on ----------------------------------------------------------------------------------------------------


async def test_after_an_interruption_the_rest_follows_and_no_name_is_queried_twice(bench: Bench) -> None:
    path = bench.numbered(60)
    bench.upstream.hold("10.5555/20")
    running = asyncio.create_task(bench.run(*bench.resumable(path)))
    await bench.arrived("10.5555/20")
    await bench.rows_written(20)
    os.kill(os.getpid(), signal.SIGINT)
    await bench.said("a second signal stops immediately")
    bench.upstream.release("10.5555/20")
    first = await running
    assert (first.status, "run the same command again to continue" in first.errors) == (130, True)
    assert 20 <= len(bench.inputs()) < 60
    second = await bench.run(*bench.resumable(path))
    assert (second.status, second.errors) == (0, "60 rows: resolved 60\n")
    assert bench.inputs() == [f"10.5555/{number}" for number in range(60)]
    assert [bench.upstream.queries(f"10.5555/{number}") for number in range(60)] == [1] * 60


@pytest.mark.process
async def test_a_second_signal_stops_immediately_and_the_rows_hold(bench: Bench) -> None:
    path = bench.numbered(60)
    bench.upstream.hold("10.5555/20")
    process = await bench.start(*bench.resumable(path))
    await bench.arrived("10.5555/20")
    await bench.rows_written(20)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    await asyncio.wait_for(process.stderr.readuntil(b"second signal"), PATIENCE)
    process.send_signal(signal.SIGINT)
    assert (await end_of(process)).status == 130
    bench.upstream.release("10.5555/20")
    assert (await bench.run(*bench.resumable(path))).status == 0
    assert bench.inputs() == [f"10.5555/{number}" for number in range(60)]


#: Members that do not depend on the time.
STEADY: Final = ("--fields", "input,doi,verdict,url,message,line")


@pytest.mark.parametrize("rows_format", ["jsonl", "csv"])
async def test_a_run_that_was_killed_at_any_byte_ends_with_the_same_file(bench: Bench, rows_format: str) -> None:
    bench.upstream.put("10.5555/ä", url=URL)
    names = ["10.5555/ä", 'x, "y"\r\nz', "10.5555/none", "10.5555/ä"]
    path = bench.write("list.json", json.dumps(names))
    arguments = (path, "-o", bench.output, "--output-format", rows_format, *STEADY)
    assert (await bench.run(*arguments)).status == 1
    whole = bench.output.read_bytes()
    # Around each end of a line, inside "ä", and each eleventh byte.
    ends = [place for place, byte in enumerate(whole) if byte in b"\r\n"]
    cuts = {*range(0, len(whole), 11), *(place + near for place in ends for near in (0, 1, 2)), whole.find(b"\xc3") + 1}
    for size in sorted(cuts - set(range(len(whole), len(whole) + 2))):
        bench.output.write_bytes(whole[:size])
        ended = await bench.run(*arguments)
        assert (ended.status, bench.output.read_bytes()) == (1, whole), (size, ended.errors)
        assert ended.errors == "4 rows: resolved 2, not_found 1, not_a_doi 1\n", size


async def test_a_file_with_all_rows_is_left_alone(bench: Bench) -> None:
    path = bench.write("list.txt", "10.5555/none\n")
    assert (await bench.run(*bench.resumable(path))).status == 1
    whole, asked = bench.output.read_bytes(), bench.upstream.queries()
    ended = await bench.run(*bench.resumable(path), store_url="memory:")
    assert (ended.status, bench.output.read_bytes(), bench.upstream.queries()) == (0, whole, asked)
    assert ended.errors == f"-o {bench.output}: all rows are written already\n1 row: not_found 1\n"


async def test_a_list_that_has_grown_and_names_among_the_arguments_go_on(bench: Bench) -> None:
    path = bench.numbered(3)
    assert (await bench.run(*bench.resumable(path))).status == 0
    path = bench.numbered(5)
    assert (await bench.run(*bench.resumable(path))).errors == "5 rows: resolved 5\n"
    assert bench.inputs() == [f"10.5555/{number}" for number in range(5)]
    bench.output.unlink()
    for names in (["10.5555/0"], ["10.5555/0", "10.5555/1"]):
        assert (await bench.run(*names, "-o", bench.output, "--output-format", "jsonl")).status == 0
    assert bench.inputs() == ["10.5555/0", "10.5555/1"]


@table(
    ("content", "arguments", "message"),
    [
        ("list", (), "line 1: this is not a row in the format jsonl with the members input and verdict"),
        ("list", ("--output-format", "csv"), "line 1: this is not a row in the format csv"),
        ("notes without an end", (), "line 1: this is not a row in the format jsonl"),
        ("notes without an end", ("--output-format", "csv"), "line 1: this is not a row in the format csv"),
        ('{"my": "notes"', (), "line 1: this is not a row in the format jsonl"),
        ("[1]\n", (), "line 1: this is not a row"),
        ('{"doi": "10.5555/0", "verdict": "resolved"}\n', (), "line 1: this is not a row"),
        ('{"input": "10.5555/\\ud800", "verdict": "resolved"}\n', (), "line 1: this is not a row"),
        ("rows and notes", ("--again", "unverified"), "line 4: this is not a row"),
        ("rows", ("--output-format", "csv"), "line 1: this is not a row in the format csv"),
        ("rows", ("--fields", "input,verdict"), "the row has the members input,doi,verdict,"),
        ("rows", ("--suggest",), "use the options of the run that began the file"),
        ("rows", ("--fields", "doi,verdict"), "rows without the members input and verdict cannot be continued"),
        ("rows", ("--output-format", "table"), "rows in the format table cannot be continued"),
        ("rows", ("10.5555/1",), "line 1: the row is not one of these lists: the input in its place is '10.5555/1'"),
        ("more rows", (), "line 4: the row is not one of these lists: the lists end before it"),
        ("rows and an error", (), "line 3: the row has the members error, and"),
        ("rows and notes", (), "line 4: this is not a row"),
    ],
)
async def test_a_file_that_does_not_fit_is_refused_and_unchanged(
    bench: Bench, content: str, arguments: tuple[str, ...], message: str
) -> None:
    path = bench.numbered(3)
    bench.output.unlink(missing_ok=True)
    await bench.run(*bench.resumable(path))
    rows = bench.output.read_text()
    contents = {
        "list": path.read_text(),
        "rows": rows,
        "more rows": rows + rows,
        "rows and an error": "".join(rows.splitlines(keepends=True)[:2]) + '{"error": {"status": 503}}\n',
        "rows and notes": rows + "notes",
    }
    bench.output.write_text(contents.get(content, content))
    before = bench.output.read_bytes()
    ended = await bench.run(*arguments, *bench.resumable(path))
    assert (ended.status, message in ended.errors) == (2, True), (message, ended.errors)
    assert bench.output.read_bytes() == before


async def test_two_runs_do_not_write_to_one_output(bench: Bench) -> None:
    path = bench.numbered(30)
    bench.upstream.hold("10.5555/20")
    running = asyncio.create_task(bench.run(*bench.resumable(path)))
    await bench.arrived("10.5555/20")
    second = await bench.run(*bench.resumable(path))
    assert (second.status, "another process writes to it" in second.errors) == (2, True)
    bench.upstream.release("10.5555/20")
    assert (await running).status == 0


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """A file system on which no file of this process can have more bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_disk_that_is_full_leaves_whole_rows_and_the_same_command_goes_on(bench: Bench) -> None:
    arguments = bench.resumable(bench.numbered(60))
    with largest_file(3_000):
        ended = await bench.run(*arguments, store_url="memory:")
    written = len(bench.inputs())
    assert (ended.status, 0 < written < 60) == (1, True)
    assert f"; {written} rows are written; run the same command again to continue" in ended.errors
    before = bench.output.read_bytes().replace(b'"resolved"', b'"unverified"')
    bench.output.write_bytes(before)
    with largest_file(1_000):
        ended = await bench.run("--again", "unverified", "-o", bench.output, store_url="memory:")
    assert (ended.status, "the file is as it was" in ended.errors) == (1, True), ended.errors
    assert bench.output.read_bytes() == before and not list(bench.folder.glob(".*.partial"))
    assert (await bench.run("--again", "unverified", *arguments)).status == 0
    assert bench.inputs() == [f"10.5555/{number}" for number in range(60)]
    full = await bench.run(bench.numbered(1), "-o", "/dev/full")
    assert "No space left on device; 0 rows are written; only a file of rows is continued; use -o FILE" in full.errors


# --- Progress -----------------------------------------------------------------------------------------------------


async def test_progress_is_shown_on_a_terminal_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench.numbered(3)
    assert (await bench.run(path, **{PROGRESS_INTERVAL: 0.0})).errors == "3 rows: resolved 3\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = (await bench.run(path, **{PROGRESS_INTERVAL: 0.0})).errors
    assert "\x1b[Kresolving: 3 of 3; " in shown
    assert shown.endswith("\x1b[K3 rows: resolved 3\n")


# --- On a server --------------------------------------------------------------------------------------------------


async def test_a_server_gets_the_names_in_parts_and_its_rows_are_written(bench: Bench) -> None:
    async with BatchServer() as server:
        path = bench.write("list.jsonl", "".join(json.dumps(f"10.5555/{number}\n") + "\n" for number in range(2_500)))
        with path.open("a") as file:
            file.write("no JSON\n")
        ended = await bench.run(path, "--server", f"{server.url}/base/", "--only-cached", "--suggest")
    assert [row["input"] for row in ended.rows[:-1]] == [f"10.5555/{number}\n" for number in range(2_500)]
    assert ended.rows[-1]["verdict"] == "not_a_doi"
    assert len(server.requests) >= 3
    assert {one.target for one in server.requests} == {"/base/api/resolve?only=cached&suggest=true"}
    assert bench.upstream.queries() == 0


@pytest.mark.process
async def test_a_running_proxy_gives_the_same_rows_as_this_process(bench: Bench) -> None:
    bench.numbered(3)
    path = bench.write("list.txt", "10.5555/2\nx\n10.5555/%30\n10.5555/none\nhttps://doi.org/10.5555/2\n")
    here = await bench.run(path, "--suggest", store_url="memory:")
    async with serving(bench.folder, bench.upstream.url, "memory:") as proxy:
        there = await bench.run(path, "--suggest", "--server", proxy.url)
    assert [row | {"age": 0} for row in there.rows] == [row | {"age": 0} for row in here.rows]
    assert (there.status, there.errors) == (1, here.errors)


async def test_after_a_failure_of_the_server_the_names_without_a_row_are_sent_again(bench: Bench) -> None:
    async with BatchServer() as server:
        server.plan = ["429", "429", "cut 2", "error 1", "ok"]
        ended = await bench.run(bench.numbered(5), "--server", server.url)
    assert [row["input"] for row in ended.rows] == [f"10.5555/{number}" for number in range(5)]
    assert [len(one.names) for one in server.requests] == [5, 5, 5, 3, 2]
    assert ended.errors.count("This client is over its limit; trying again, 8 times at most\n") == 1
    assert ended.errors.count("trying again") == 3
    assert ended.status == 0


async def test_a_server_that_refuses_ends_the_job(bench: Bench) -> None:
    async with BatchServer() as server:
        for step, message in (("wrong", "the rows do not match the names"), ("refusal 1", "has more than 1 names.")):
            server.plan = [step]
            ended = await bench.run(bench.numbered(2), "--server", server.url)
            assert (ended.status, message in ended.errors) == (1, True)
        assert (len(ended.rows), len(server.requests)) == (1, 2)


async def test_the_requests_to_a_server_have_limits(bench: Bench) -> None:
    async with BatchServer() as server:
        ended = await bench.run(bench.numbered(5), "--server", server.url, **{REQUEST_NAMES: 2})
        assert [len(one.names) for one in server.requests] == [2, 2, 1]
        assert ended.status == 0
        server.plan = ["429", "429"]
        ended = await bench.run(bench.numbered(1), "--server", server.url, **{MOST_TRIES: 2})
        assert (ended.status, "stopped after 2 requests" in ended.errors) == (1, True)
        server.plan = ["stall 1"]
        limits = {ROW_TIMEOUT: 1, MOST_TRIES: 1}
        ended = await bench.run(bench.numbered(2), "--server", server.url, **limits)
        assert (ended.status, "no answer: timed out" in ended.errors) == (1, True)


async def test_a_list_on_a_server_can_be_interrupted_and_continued(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "GRACE", 0.0)
    path = bench.numbered(30)
    async with BatchServer() as server:
        server.plan = ["stall 10"]
        running = asyncio.create_task(bench.run(*bench.resumable(path), "--server", server.url))
        await bench.rows_written(10)
        os.kill(os.getpid(), signal.SIGINT)
        assert (await running).status == 130
        assert (await bench.run(*bench.resumable(path), "--server", server.url)).status == 0
    assert bench.inputs() == [f"10.5555/{number}" for number in range(30)]
    assert [len(one.names) for one in server.requests] == [30, 20]
