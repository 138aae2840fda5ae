"""`doi-proxy resolve --match`: references of a file are compared with the works of their names."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.constants import changed
from tests.features.lists.command_bench import Bench, until
from tests.features.lists.conftest import bench  # noqa: F401 - a fixture
from tests.features.lists.list_server import BatchServer
from tests.features.metadata.agency import TITLE, Agency, open_agency, put_prefix
from tests.features.metadata.test_metadata import ON, OTHER, entry

# The commands are synchronous: they run in a thread, over sockets of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]


@pytest.fixture
async def agency(bench: Bench) -> AsyncIterator[Agency]:  # noqa: F811
    """The agency of 10.5555, where the command fetches metadata."""
    # Real seconds, of which a busy machine may take many.
    patient = {"doi_proxy.features.metadata.client.FETCH_TIMEOUT": 60.0}
    async with open_agency() as agency:
        put_prefix(bench.upstream, agency.url)
        bench.upstream.put("10.5555/a", url="https://publisher.example/a")
        bench.settings |= ON
        with changed(patient):
            yield agency


def references(bench: Bench) -> Path:  # noqa: F811
    """One reference to the work, one to another, one that says too little, and one to no work."""
    another = entry(OTHER, author="Jones, K", year=2020)
    return bench.write("a.bib", entry(TITLE) + another + entry(OTHER) + entry(OTHER, "10.5555/none"))


MATCHES = [("same", TITLE), ("different", TITLE), ("doubtful", TITLE), ("unknown", None)]


async def test_rows_say_whether_a_reference_is_about_the_work(bench: Bench, agency: Agency) -> None:  # noqa: F811
    ended = await bench.run(references(bench), "--match")
    assert [(row["match"], row["title"]) for row in ended.rows] == MATCHES
    assert (ended.status, ended.errors) == (
        1,
        "4 rows: resolved 3, not_found 1; compared 3 of 4, same 1, doubtful 1, different 1\n",
    )
    assert len(agency.requests) == 1
    assert "match" not in (await bench.run(references(bench))).rows[0]


async def test_another_work_alone_is_a_failure(bench: Bench, agency: Agency) -> None:  # noqa: F811
    path = bench.write("a.csv", f'doi,title,author,year\n10.5555/a,{OTHER},"Jones, K",2020\n')
    assert (await bench.run(path, "--match", "-o", bench.output)).status == 1
    assert len(agency.requests) == 1
    with path.open("a") as file:
        file.write(f'10.5555/a,{TITLE},"Einstein, A",1905\n')
    ended = await bench.run(path, "--match", "-o", bench.output)
    assert (ended.status, ended.errors) == (
        1,
        f"{path}: column “doi”\n2 rows: resolved 2; compared 2 of 2, same 1, different 1\n",
    )
    assert (await bench.run(path)).status == 0
    doubtful = bench.write("b.csv", f'doi,title,author,year\n10.5555/a,{OTHER},"Einstein, A",1905\n')
    ended = await bench.run(doubtful, "--match")
    assert (ended.status, ended.rows[0]["match"], ended.rows[0]["why"]) == (0, "doubtful", "These differ: title.")


async def test_a_table_and_lines_of_errors_name_the_other_work(bench: Bench, agency: Agency) -> None:  # noqa: F811
    path = references(bench)
    ended = await bench.run(path, "--match", "--output-format", "concise")
    assert ended.output.splitlines() == [
        f"{path}:11: another work 10.5555/a (k): {TITLE}",
        f"{path}:17: doubtful 10.5555/a (k): {TITLE}",
        f"{path}:23: not_found 10.5555/none (k)",
    ]
    table = (await bench.run(path, "--match", "--output-format", "table")).output.splitlines()
    assert table[0].split() == ["VERDICT", "MATCH", "INPUT", "TITLE", "WHY"]
    assert "different" in table[2] and table[2].endswith("These differ: title, authors, year.")
    ended = await bench.run(path, "--match", "--output-format", "csv", "--fields", "doi,match")
    assert ended.output.splitlines()[1:3] == ["10.5555/a,same", "10.5555/a,different"]


async def test_an_interruption_ends_after_the_fetch_under_way_and_the_rest_follows(
    bench: Bench,  # noqa: F811
    agency: Agency,
) -> None:
    names = [f"10.5555/m{number}" for number in range(60)]
    for name in names:
        bench.upstream.put(name, url=f"https://publisher.example/{name}")
    path = bench.write("many.bib", "".join(entry(TITLE, name) for name in names))
    arguments = (path, "--match", "-o", bench.output)
    agency.free.clear()
    running = asyncio.create_task(bench.run(*arguments))
    # The first works are under way, and the records of the other names are known.
    await until(lambda: len(agency.requests) == 3 and bench.upstream.queries(names[-1]) == 1)
    os.kill(os.getpid(), signal.SIGINT)
    await bench.said("a second signal stops immediately")
    agency.free.set()
    first = await running
    done = len(bench.inputs())
    assert (first.status, bench.inputs(), 0 < done < 10) == (130, names[:done], True)
    second = await bench.run(*arguments)
    assert (second.status, bench.inputs()) == (0, names)


async def test_a_server_gets_what_references_state(bench: Bench) -> None:  # noqa: F811
    async with BatchServer() as server:
        ris = bench.write("b.ris", f"TY  - JOUR\nDO  - 10.5555/b\nTI  - {TITLE}\nPY  - 1905\nER  - \n")
        plain = bench.write("c.json", json.dumps(["10.5555/c"]))
        bib = bench.write("a.bib", entry(TITLE))
        text = bench.write("d.txt", "Einstein. 1905. 10.5555/d\n")
        ended = await bench.run(bib, ris, text, plain, "--match", "--server", server.url)
    assert ended.status == 0, ended.errors
    assert {one.target for one in server.requests} == {"/api/resolve?match=true"}
    assert [name for one in server.requests for name in one.names] == [
        {"doi": "10.5555/a", "title": [TITLE], "author": ["Einstein, A"], "year": ["1905"]},
        {"doi": "10.5555/b", "title": [TITLE], "year": ["1905"]},
        {"doi": "10.5555/d", "unstructured": "Einstein. 1905. 10.5555/d"},
        "10.5555/c",
    ]


async def test_what_cannot_be_compared_is_refused_at_the_start(bench: Bench) -> None:  # noqa: F811
    path = references(bench)
    for arguments, message in (
        (("10.5555/a", "--match"), "10.5555/a is a name without a reference"),
        (("--again", "unverified", "-o", path, "--match"), "rows have no references to compare"),
        ((path, "--match"), "works are looked up only online"),
    ):
        bench.settings["metadata"] = False
        ended = await bench.run(*arguments)
        assert (ended.status, message in ended.errors, ended.output) == (2, True, ""), ended.errors
