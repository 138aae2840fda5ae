"""Floods of costly requests: reloads, which bypass the cache, and large answers, which are compressed."""

from __future__ import annotations

import asyncio
import gzip
import sys
import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import psutil
import pytest

from doi_proxy.web.stage import RELOAD_AGE
from tests.cache.entries import entry
from tests.cluster.processes import START_DEADLINE, Proxy, until
from tests.cluster.raw_http import Answered, ask
from tests.constants import BYPASSES
from tests.hostile.conftest import started
from tests.hostile.records import PREFIX
from tests.parts import usual_cache

pytestmark = [pytest.mark.process, pytest.mark.nightly]

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

GREEDY, MODEST = "127.0.1.1", "127.0.2.1"
BURST = 5
#: The numbers of names that are reloaded 200 times in all.
FLOODS: Final = (1, 20)
#: A record of 870 kB of JSON.
LARGE = f"{PREFIX}/deep-json-256k"
_MIB = 1024 * 1024


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory, upstream_url: str) -> Iterator[Proxy]:
    """A proxy with few bypasses for each client. Its store has an old copy of each name that is reloaded."""
    folder = tmp_path_factory.mktemp("flooded")
    store_url = f"sqlite:///{folder}/store.sqlite3"
    asyncio.run(_fill(store_url))
    one = started(folder, upstream_url, store_url=store_url, **{BYPASSES: BURST})
    try:
        yield one
    finally:
        one.process.kill()


async def _fill(store_url: str) -> None:
    cache, old = usual_cache(store_url, clock=time.time), time.time() - 60 * RELOAD_AGE
    for names in FLOODS:
        for number in range(names + 1):
            await cache.put(entry(f"10.1000/RELOADED-{names}-{number}", fetched_at=old))
    await cache.close()


async def reload(proxy: Proxy, name: str, client: str) -> int:
    """The status of a reload."""
    headers = {"Cache-Control": "no-cache"}
    return (await proxy.ask(f"/{name}", headers=headers, client=client)).status


async def queries(upstream_url: str, prefix: str, numbers: range) -> int:
    """The number of upstream queries for names, which are `prefix` and a number."""
    counts = (await ask(urlsplit(upstream_url).port or 0, "/control/counts")).json["by_name"]
    names = {f"{prefix}{number}" for number in numbers}
    return sum(number for name, number in counts.items() if name.lower() in names)


@pytest.mark.parametrize("names", FLOODS, ids=["one name", "many names"])
def test_a_flood_of_reloads_is_answered_from_the_cache(flooded: Proxy, upstream_url: str, names: int) -> None:
    prefix = f"10.1000/reloaded-{names}-"
    network, other = f"127.1.{names}", f"127.2.{names}.1"

    async def run() -> None:
        flood = [reload(flooded, f"{prefix}{number % names}", f"{network}.{1 + number}") for number in range(200)]
        # The addresses of one network are one client.
        assert set(await asyncio.gather(*flood)) == {302}
        # Another client has bypasses of its own.
        assert await reload(flooded, f"{prefix}{names}", other) == 302

        async def have_arrived() -> bool:
            of_flood = await queries(upstream_url, prefix, range(names))
            # Beyond its bypasses, a client gets what the store has.
            assert of_flood <= BURST
            return of_flood > 0 and await queries(upstream_url, prefix, range(names, names + 1)) == 1

        # The stored record may be answered before the query is counted.
        await until(have_arrived, START_DEADLINE, "a query for each client")

    asyncio.run(run())


def body_of(answer: Answered) -> bytes:
    """The body of an answer, decompressed."""
    match answer.headers.get("content-encoding"):
        case "gzip":
            return gzip.decompress(answer.body)
        case "zstd":
            return zstd.decompress(answer.body)
        case _:
            return answer.body


def test_a_flood_of_large_answers_leaves_memory_and_other_clients_alone(flooded: Proxy) -> None:
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

    asyncio.run(run())
