"""`--again` looks up rows of an earlier run again, and replaces them in place."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from typing import Any

import pytest

from tests.features.lists.command_bench import Bench

# The commands are synchronous: they run in a thread, over sockets of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

AGAIN = "--again", "unverified,rate_limited"


def row(name: str, verdict: str, **more: Any) -> str:
    members = {"input": name, "doi": name, "verdict": verdict, "url": None, "line": 7, "key": "smith"} | more
    return json.dumps(members) + "\n"


def rows(bench: Bench) -> list[dict[str, Any]]:
    return [json.loads(line) for line in bench.output.read_text().splitlines()]


async def test_rows_with_these_verdicts_are_replaced_and_no_others(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        bench.upstream.put(f"10.5555/{name}", url=f"https://example.org/{name}")
    kept = row("10.5555/c", "not_found") + '{"error": {"status": 413, "detail": "x"}}\n'
    bench.output.write_text(row("10.5555/a", "unverified", mine=1) + kept + row("10.5555/b", "rate_limited"))
    bench.output.chmod(0o640)
    ended = await bench.run(*AGAIN, "-o", bench.output)
    assert (ended.status, ended.errors) == (1, "3 rows: resolved 2, not_found 1\n")
    assert "".join(bench.output.read_text().splitlines(keepends=True)[1:3]) == kept
    first, _, _, last = rows(bench)
    assert first == {
        "input": "10.5555/a", "doi": "10.5555/a", "verdict": "resolved", "url": "https://example.org/a",
        "line": 7, "key": "smith", "mine": 1,
    }  # fmt: skip
    assert last["verdict"] == "resolved"
    assert stat.S_IMODE(bench.output.stat().st_mode) == 0o640
    assert [path.name for path in bench.folder.glob("rows*")] == ["rows"]


async def test_a_run_that_a_signal_ends_keeps_what_was_answered(bench: Bench) -> None:
    for number in range(60):
        bench.upstream.put(f"10.5555/{number}", url="https://example.org/")
    bench.output.write_text("".join(row(f"10.5555/{number}", "unverified") for number in range(60)))
    bench.upstream.hold("10.5555/20")
    running = asyncio.create_task(bench.run(*AGAIN, "-o", bench.output))
    await bench.arrived("10.5555/20")
    os.kill(os.getpid(), signal.SIGINT)
    await bench.said("a second signal stops immediately")
    bench.upstream.release("10.5555/20")
    stopped = await running
    verdicts = [one["verdict"] for one in rows(bench)]
    done = verdicts.count("resolved")
    assert (stopped.status, len(verdicts), 20 <= done < 60) == (130, 60, True)
    assert f"stopped by a signal after {done} of 60 names; run the same command again to continue" in stopped.errors
    ended = await bench.run(*AGAIN, "-o", bench.output)
    assert (ended.status, {one["verdict"] for one in rows(bench)}) == (0, {"resolved"})
    assert [bench.upstream.queries(f"10.5555/{number}") for number in range(60)] == [1] * 60


async def test_rows_of_csv_are_replaced(bench: Bench) -> None:
    bench.upstream.put("10.5555/a,b", url="https://example.org/")
    kept = '"x\r\ny",not_a_doi,\r\n'
    bench.output.write_bytes(f'input,verdict,mine\r\n"10.5555/a,b",unverified,1\r\n{kept},,error\r\n'.encode())
    ended = await bench.run(*AGAIN, "-o", bench.output, "--output-format", "csv")
    assert (ended.status, ended.errors) == (1, "2 rows: resolved 1, not_a_doi 1\n")
    expected = f'input,verdict,mine\r\n"10.5555/a,b",resolved,1\r\n{kept},,error\r\n'
    assert bench.output.read_bytes() == expected.encode()


async def test_with_a_list_the_rows_are_replaced_and_the_rest_follows(bench: Bench) -> None:
    path = bench.numbered(4)
    arguments = (*AGAIN, "-o", bench.output, path)
    assert (await bench.run(*arguments)).errors == "4 rows: resolved 4\n"
    whole = rows(bench)
    first = whole[0] | {"verdict": "unverified"}
    bench.output.write_text(json.dumps(first) + "\n" + json.dumps(whole[1]) + '\n{"input"')
    ended = await bench.run(*arguments)
    assert (ended.status, ended.errors) == (0, "4 rows: resolved 4\n")
    assert [one | {"age": 0} for one in rows(bench)] == [one | {"age": 0} for one in whole]


async def test_a_file_without_such_rows_is_left_alone(bench: Bench) -> None:
    bench.output.write_text(row("10.5555/a", "resolved"))
    before = bench.output.stat()
    ended = await bench.run(*AGAIN, "-o", bench.output)
    assert (ended.status, bench.output.stat().st_ino, bench.upstream.queries()) == (0, before.st_ino, 0)
    assert ended.errors == "1 row: resolved 1\n"


async def test_the_rows_of_errors_stay(bench: Bench) -> None:
    error = '{"error": "The list ends here.", "verdict": "unverified"}\n'
    bench.output.write_text(row("10.5555/a", "unverified") + error)
    await bench.run(*AGAIN, "-o", bench.output)
    first, second = bench.output.read_text().splitlines(keepends=True)
    assert json.loads(first)["verdict"] == "not_found" and second == error


async def test_what_cannot_be_rewritten_is_said(bench: Bench) -> None:
    assert "this is neither a file" in (await bench.run(*AGAIN, "-o", bench.folder / "none")).errors
    assert "--again: only a file of rows is continued; use -o FILE" in (await bench.run(*AGAIN)).errors
    bench.output.write_text(row("10.5555/a", "unverified"))
    table = (*AGAIN, "-o", bench.output, "--output-format", "table")
    assert "use --output-format jsonl or csv" in (await bench.run(*table)).errors
