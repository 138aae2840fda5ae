"""`doi-proxy resolve` ends by one signal, with whole rows, whatever it waits for."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from typing import Final

import pytest

from doi_proxy.list_formats.body import write_all
from doi_proxy.system import progress
from tests.constants import LIST_WAIT
from tests.features.lists.command_bench import Bench

# The commands are synchronous: they run in a thread, over sockets of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

#: Longer than a second signal or the upstream's answer, of which there are none, and shorter than the test's end.
_LONG: Final = {LIST_WAIT: 600, "upstream_timeout": 50}


@pytest.fixture(autouse=True)
def no_grace(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names under way are abandoned at once, unlike in other tests with a bench."""
    monkeypatch.setattr(progress, "GRACE", 0.0)


async def test_one_signal_ends_a_list_whose_next_name_has_no_answer(bench: Bench) -> None:
    path = bench.numbered(60)
    bench.upstream.hold("10.5555/20")
    running = asyncio.create_task(bench.run(*bench.resumable(path), **_LONG))
    await bench.arrived("10.5555/20")
    await bench.rows_written(20)
    os.kill(os.getpid(), signal.SIGTERM)
    ended = await running
    assert ended.status == 130
    assert re.search(r"^stopped by a signal after 20 of (at least )?60 names; run the same", ended.errors, re.MULTILINE)
    assert bench.inputs() == [f"10.5555/{number}" for number in range(20)]
    bench.upstream.release("10.5555/20")
    assert (await bench.run(*bench.resumable(path))).status == 0
    assert bench.inputs() == [f"10.5555/{number}" for number in range(60)]


async def test_one_signal_ends_the_wait_for_an_upstream_that_refuses(bench: Bench) -> None:
    bench.upstream.fault("10.5555/a", "status", status=429, retry_after=300)
    running = asyncio.create_task(bench.run("10.5555/a", **_LONG))
    await bench.arrived("10.5555/a")
    os.kill(os.getpid(), signal.SIGINT)
    ended = await running
    assert (ended.status, ended.output) == (130, "")
    assert "stopped by a signal after 0 of 1 names" in ended.errors


async def test_after_a_signal_no_more_suggestions_are_checked(bench: Bench) -> None:
    # Each name does not exist, and is suggested without the full stop at its end.
    names = [f"10.5555/{number}." for number in range(60)]
    path = bench.write("list.txt", "".join(f"{name}\n" for name in names))
    bench.upstream.hold("10.5555/10")
    arguments = (path, "--check-suggestions", "--output", bench.output)
    running = asyncio.create_task(bench.run(*arguments, **_LONG))
    await bench.arrived("10.5555/10")
    await bench.rows_written(10)
    os.kill(os.getpid(), signal.SIGINT)
    ended = await running
    assert ended.status == 130
    assert 10 <= len(bench.inputs()) <= 11
    assert sum(bench.upstream.queries(f"10.5555/{number}") for number in range(11, 60)) == 0


async def test_lines_in_a_full_pipe_are_whole() -> None:
    lines = [
        json.dumps({"number": number, "more": "x" * (number * 37 % 900)}).encode() + b"\n" for number in range(400)
    ]
    reader, writer = os.pipe()
    try:
        writing = asyncio.create_task(write_all(writer, b"".join(lines)))
        for _ in range(1_000):  # a pipe takes 64 KiB, in pieces of up to 4 KiB
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        os.close(writer)
        writer = -1
        with os.fdopen(reader, "rb") as file:
            written = file.read()
        assert 0 < len(written) < sum(map(len, lines))
        assert b"".join(lines).startswith(written) and written.endswith(b"\n")
    finally:
        if writer >= 0:
            os.close(writer)
