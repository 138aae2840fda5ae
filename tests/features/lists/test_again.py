"""`--again` looks up rows of an earlier run again, and replaces them in place."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import stat
from typing import Any

import pytest

from app.features.lists import again
from tests.features.lists.test_resolve import Bench, bench  # noqa: F401 - a fixture
from tests.table import table

pytestmark = pytest.mark.anyio

NO_WAIT = {"app.features.lists.batch.WAIT_TIMEOUT": 0}
AGAIN = "--again", "unverified,rate_limited"


def row(name: str, verdict: str, **more: Any) -> str:
    members = {"input": name, "doi": name, "verdict": verdict, "url": None, "line": 7, "key": "smith"} | more
    return json.dumps(members) + "\n"


def rows(bench: Bench) -> list[dict[str, Any]]:  # noqa: F811
    return [json.loads(line) for line in bench.output.read_text().splitlines()]


async def test_rows_with_these_verdicts_are_replaced_and_no_others(bench: Bench) -> None:  # noqa: F811
    for name in ("a", "b", "c"):
        bench.upstream.put(f"10.5555/{name}", url=f"https://example.org/{name}")
    kept = row("10.5555/c", "not_found") + '{"error": {"status": 413, "detail": "x"}}\n'
    bench.output.write_text(row("10.5555/a", "unverified", mine=1) + kept + row("10.5555/b", "rate_limited"))
    bench.output.chmod(0o640)
    ended = await bench.run(*AGAIN, "-o", bench.output)
    assert (ended.status, ended.errors) == (0, "2 rows: resolved 2\n")
    assert "".join(bench.output.read_text().splitlines(keepends=True)[1:3]) == kept
    first, _, _, last = rows(bench)
    assert first == {
        "input": "10.5555/a", "doi": "10.5555/a", "verdict": "resolved", "url": "https://example.org/a",
        "line": 7, "key": "smith", "mine": 1,
    }  # fmt: skip
    assert last["verdict"] == "resolved"
    assert stat.S_IMODE(bench.output.stat().st_mode) == 0o640
    assert [path.name for path in bench.folder.glob("rows*")] == ["rows.jsonl"]


async def test_a_run_that_a_signal_ends_keeps_what_was_answered(bench: Bench) -> None:  # noqa: F811
    for number in range(60):
        bench.upstream.put(f"10.5555/{number}", url="https://example.org/")
    bench.output.write_text("".join(row(f"10.5555/{number}", "unverified") for number in range(60)))
    bench.upstream.hold("10.5555/20")
    running = asyncio.create_task(bench.run(*AGAIN, "-o", bench.output))
    await bench.arrived("10.5555/20")
    os.kill(os.getpid(), signal.SIGINT)
    await bench.said("a second signal stops immediately")
    bench.upstream.release("10.5555/20")
    assert (await running).status == 130
    verdicts = [one["verdict"] for one in rows(bench)]
    assert len(verdicts) == 60 and 20 <= verdicts.count("resolved") < 60
    ended = await bench.run(*AGAIN, "-o", bench.output)
    assert (ended.status, {one["verdict"] for one in rows(bench)}) == (0, {"resolved"})
    assert [bench.upstream.queries(f"10.5555/{number}") for number in range(60)] == [1] * 60


async def test_rounds_repeat_only_what_could_not_be_verified(
    bench: Bench,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(again, "FIRST_PAUSE", 0.0)
    bench.upstream.put("10.5555/a", url="https://example.org/")
    bench.upstream.fault("10.5555/a", "status", status=503, count=2)
    bench.output.write_text(row("10.5555/a", "unverified") + row("10.5555/none", "not_found"))
    verdicts = "unverified,not_found"
    ended = await bench.run("--again", verdicts, "--rounds", "5", "-o", bench.output)
    assert ended.status == 1, ended.errors
    assert [one["verdict"] for one in rows(bench)] == ["resolved", "not_found"]
    assert (bench.upstream.queries("10.5555/a"), bench.upstream.queries("10.5555/none")) == (3, 1)
    assert ended.errors.splitlines()[-1] == "2 rows: resolved 1, not_found 1"
    assert "round 2 of 5: 1 name was not verified; the next round begins in 0:00:" in ended.errors


async def test_rounds_end_and_the_pause_between_them_is_that_of_the_upstream(
    bench: Bench,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(again, "FIRST_PAUSE", 0.0)
    bench.upstream.fault("10.5555/a", "status", status=503)
    bench.output.write_text(row("10.5555/a", "unverified"))
    ended = await bench.run(*AGAIN, "--rounds", "3", "-o", bench.output, **NO_WAIT)
    assert (ended.status, ended.errors.count("next round")) == (1, 2)
    assert ended.errors.endswith("1 row: unverified 1\n")
    bench.upstream.fault("10.5555/a", "status", status=429, retry_after=90)
    running = asyncio.create_task(bench.run(*AGAIN, "--rounds", "3", "-o", bench.output, **NO_WAIT))
    await bench.said("round 1 of 3: 1 name was not verified; the next round begins in 0:01:")
    os.kill(os.getpid(), signal.SIGINT)
    assert (await running).status == 130
    assert [one["verdict"] for one in rows(bench)] == ["rate_limited"]


@table(
    ("content", "message"),
    [
        ("verdict,input\n", "line 1: this is not a row in JSON"),
        ('["error"]\n', "line 1: this is not a row in JSON"),
        ('"an error"\n', "line 1: this is not a row in JSON"),
        (row("10.5555/a", "unverified") + '{"doi": "10.5555/a"}\n', "line 2: this is not a row in JSON"),
    ],
)
async def test_another_file_is_refused_and_unchanged(bench: Bench, content: str, message: str) -> None:  # noqa: F811
    bench.output.write_text(content)
    ended = await bench.run(*AGAIN, "-o", bench.output)
    assert ended.status == 2 and message in ended.errors
    assert bench.output.read_text() == content
    assert not list(bench.folder.glob("*.partial"))


async def test_the_rows_of_errors_stay_and_a_lone_surrogate_is_written(bench: Bench) -> None:  # noqa: F811
    error = '{"error": "The list ends here.", "verdict": "unverified"}\n'
    bench.output.write_text('{"input": "10.5555/\\ud800", "verdict": "unverified"}\n' + error)
    ended = await bench.run(*AGAIN, "-o", bench.output)
    assert ended.status == 1 and "Traceback" not in ended.errors
    first, second = bench.output.read_text().splitlines(keepends=True)
    assert json.loads(first)["verdict"] == "not_a_doi" and second == error


async def test_what_cannot_be_rewritten_is_said(bench: Bench) -> None:  # noqa: F811
    assert "cannot be read" in (await bench.run(*AGAIN, "-o", bench.folder / "none")).errors
    assert "name the file of rows" in (await bench.run(*AGAIN)).errors
    assert "--rounds: name the verdicts" in (await bench.run("--rounds", "2", "-o", bench.output)).errors
    assert "no list" in (await bench.run(*AGAIN, "-o", bench.output, bench.numbered(1))).errors
    bench.output.write_text(row("10.5555/a", "unverified"))
    with bench.output.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another process writes" in (await bench.run(*AGAIN, "-o", bench.output)).errors


async def test_the_old_words_work_with_a_warning(bench: Bench) -> None:  # noqa: F811
    bench.upstream.put("10.5555/a", url="https://example.org/")
    ended = await bench.run(bench.write("list", "10.5555/a\n"), "--output", "urls", "--format", "text")
    assert (ended.status, ended.output) == (0, "https://example.org/\n")
    assert "--output: this word ends with the next release; use --output-format\n" in ended.errors
    assert "--format: this word ends with the next release; use --input-format\n" in ended.errors
