"""A flood of large answers, which are compressed."""

from __future__ import annotations

import asyncio
import gzip
import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster.raw_http import Answered
from tests.hostile.conftest import started
from tests.hostile.records import PREFIX

pytestmark = [pytest.mark.process, pytest.mark.nightly]

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GREEDY, MODEST = "127.0.1.1", "127.0.2.1"
#: A record of 870 kB of JSON.
LARGE = f"{PREFIX}/deep-json-256k"
_MIB = 1024 * 1024


def body_of(answer: Answered) -> bytes:
    """The body of an answer, decompressed."""
    match answer.headers.get("content-encoding"):
        case "gzip":
            return gzip.decompress(answer.body)
        case "zstd":
            return zstd.decompress(answer.body)
        case _:
            return answer.body


def test_a_flood_of_large_answers_leaves_memory_and_other_clients_alone(tmp_path: Path, upstream_url: str) -> None:
    flooded = started(tmp_path, upstream_url)
    process = psutil.Process(flooded.process.id)

    async def get(number: int) -> Answered:
        # Each query is another answer, with another ETag.
        headers = {"Accept-Encoding": ("zstd", "gzip", "identity")[number % 3]}
        target = f"/api/handles/{LARGE}?callback=show{number % 30}"
        return await flooded.ask(target, headers=headers, client=GREEDY, deadline=120.0)

    async def run() -> None:
        assert (await flooded.ask(f"/api/handles/{LARGE}", client=GREEDY)).status == 200
        before = process.memory_info().rss
        for first in range(0, 120, 20):
            *answers, other = await asyncio.gather(
                *(get(number) for number in range(first, first + 20)), flooded.ask("/10.1000/182", client=MODEST)
            )
            assert other.status == 302
            for number, answer in enumerate(answers, first):
                assert answer.status == 200
                assert body_of(answer).startswith(b"show%d({" % (number % 30))
            # While the thread compresses one body, others are sent as they are.
            assert any("content-encoding" in answer.headers for answer in answers)
        assert process.memory_info().rss - before < 100 * _MIB

    try:
        asyncio.run(run())
    finally:
        flooded.process.kill()
