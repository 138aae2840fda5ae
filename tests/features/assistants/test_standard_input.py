"""The lines of standard input."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

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


async def test_a_line_that_is_too_long_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    pieces = b"x" * 17 + b"\n" + b"y" * 16 + b"\n", b"z" * 30_000, "\ntwö\n\xff\n".encode("latin-1"), b"end"
    assert await lines_of(*pieces) == ["y" * 16 + "\n", "tw\ufffd\n", "\ufffd\n", "end\n"]
    assert caplog.text.count("more than 16 bytes") == 2


async def test_a_reader_that_waits_can_be_cancelled() -> None:
    async with pipe() as (reader, writer):
        async with aclosing(read_lines(reader, MOST)) as lines:
            waiting = asyncio.ensure_future(anext(lines))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        os.close(writer)
