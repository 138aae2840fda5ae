"""The SQLite file of a running service is damaged while the upstream is down."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import START_DEADLINE, until

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.process]

TARGETS: Final = {f"10.1234/{number}": f"https://www.example.org/{number}" for number in range(20)}
#: The metric that counts the names in memory.
IN_MEMORY: Final = b"\ndoi_proxy_memory_entries "


def damage(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.write(b"\0" * path.stat().st_size)


def count_entries(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM entries").fetchone()
        return int(count)


async def test_names_in_memory_are_answered_while_the_file_is_lost_and_comes_back(
    start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str, tmp_path: Path
) -> None:
    path = tmp_path / "store.sqlite3"
    upstream = start_upstream(TARGETS)
    proxy = start_proxy(upstream.url, store_file)
    await asyncio.gather(upstream.ready(), proxy.serves())

    async def ask_all() -> set[int]:
        return {(await proxy.ask(f"/{name}")).status for name in TARGETS}

    async def is_in_memory() -> bool:
        assert await ask_all() == {302}
        _, _, rest = (await proxy.ask("/metrics")).body.partition(IN_MEMORY)
        return float(rest.split(b"\n", 1)[0]) >= len(TARGETS)

    await until(is_in_memory, START_DEADLINE, "every name is in memory")

    async def is_written() -> bool:
        return count_entries(path) == len(TARGETS)

    await until(is_written, START_DEADLINE, "all names are in the store")
    upstream.process.kill()
    damage(path)

    async def is_back() -> bool:
        assert await ask_all() == {302}, proxy.process.log
        # A name that is not in memory makes it read the damaged file.
        assert (await proxy.ask("/10.1234/other")).status in (502, 503, 504)
        return "The store is open after" in proxy.process.log

    await until(is_back, START_DEADLINE, "the store is open again")
    assert "is damaged" in proxy.process.log
    await until(is_written, START_DEADLINE, "all names are in the store that is at the path")
