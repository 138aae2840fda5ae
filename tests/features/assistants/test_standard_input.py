"""The lines of standard input."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from doi_proxy.features.assistants.server import read_lines

# Its streams are pipes of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

MOST = 16


@asynccontextmanager
async def pipe() -> AsyncIterator[tuple[int, int]]:
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        os.close(reader)


async def lines_of(*pieces: bytes) -> list[str]:
    async with pipe() as (reader, writer):
        for piece in pieces:
            os.write(writer, piece)
        os.close(writer)
        return [line async for line in read_lines(reader, MOST)]


async def test_lines_are_those_of_the_input() -> None:
    assert await lines_of("one\ntwö\n".encode(), b"thr", b"ee") == ["one\n", "twö\n", "three\n"]


async def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    assert await lines_of(b"\xff\n") == ["�\n"]


async def test_a_line_that_is_too_long_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert await lines_of(b"x" * 17 + b"\n" + b"y" * 16 + b"\n", b"z" * 30_000, b"\nend") == ["y" * 16 + "\n", "end\n"]
    assert caplog.text.count("more than 16 bytes") == 2


async def test_a_file_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"one\ntwo\n")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert [line async for line in read_lines(descriptor, MOST)] == ["one\n", "two\n"]
    finally:
        os.close(descriptor)


async def test_a_reader_that_waits_can_be_cancelled() -> None:
    async with pipe() as (reader, writer):
        async with aclosing(read_lines(reader, MOST)) as lines:
            waiting = asyncio.ensure_future(anext(lines))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        os.close(writer)
