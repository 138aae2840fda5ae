"""Two services with one SQLite file: started at once, killed, and started while another process holds the lock."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import START_DEADLINE, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.process]

NAME, OTHER = "10.1234/one", "10.1234/two"
TARGETS = {NAME: "https://www.example.org/1", OTHER: "https://www.example.org/2"}


async def test_two_services_on_one_file_answer_and_one_killed_stops_no_other(
    start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str
) -> None:
    upstream = start_upstream(TARGETS)
    one, two = start_proxy(upstream.url, store_file), start_proxy(upstream.url, store_file, workers=2)
    await asyncio.gather(upstream.ready(), one.ready(), two.ready())
    assert [(await proxy.ask(f"/{NAME}")).status for proxy in (one, two)] == [302, 302]
    one.process.kill()
    assert (await two.ask(f"/{OTHER}")).status == 302
    one.restart()
    await one.ready()
    two.process.kill()
    assert (await one.ask(f"/{OTHER}")).status == 302


async def test_a_service_answers_although_another_process_never_finishes_opening_the_file(
    start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str, tmp_path: Path
) -> None:
    upstream = start_upstream(TARGETS)
    with (tmp_path / "store.sqlite3.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        proxy = start_proxy(upstream.url, store_file)
        await asyncio.gather(upstream.ready(), proxy.ready())
        assert (await proxy.ask(f"/{NAME}")).status == 302

        async def said() -> bool:
            return "another process is opening it and does not finish" in proxy.process.log

        await until(said, START_DEADLINE, "the log says why the store is not open")


async def test_workers_leave_a_file_of_another_format_and_say_so_once(
    start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str, tmp_path: Path
) -> None:
    path = tmp_path / "store.sqlite3"
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TABLE entries (key TEXT)")
        file.execute("PRAGMA user_version = 3")
    before, upstream = path.read_bytes(), start_upstream(TARGETS)
    proxy = start_proxy(upstream.url, store_file, workers=2)
    await asyncio.gather(upstream.ready(), proxy.ready())
    assert (await proxy.ask(f"/{NAME}")).status == 302
    (line,) = [line for line in proxy.process.log.splitlines() if "another format than 1" in line]
    assert "WARNING" in line and f"{path} is" in line and f"the store is {path}.1;" in line
    assert path.read_bytes() == before


async def test_new_names_are_answered_while_another_process_locks_the_store(
    start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str, tmp_path: Path
) -> None:
    names = {f"10.1234/new-{number}": f"https://www.example.org/new/{number}" for number in range(16)}
    upstream = start_upstream(names)
    proxy = start_proxy(upstream.url, store_file, workers=2)
    await asyncio.gather(upstream.ready(), proxy.serves())
    path = tmp_path / "store.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        # Each request has a connection of its own, so both workers get some.
        found = await asyncio.gather(*(proxy.ask(f"/{name}") for name in names))
        assert [answer.location for answer in found] == list(names.values())
        # No write has waited for its whole time yet, so no answer waited for a write.
        assert "The store is down" not in proxy.process.log
        other.execute("ROLLBACK")

    async def written() -> bool:
        with closing(sqlite3.connect(path)) as connection:
            return bool(connection.execute("SELECT count(*) FROM entries").fetchone()[0] == len(names))

    await until(written, START_DEADLINE, "the names are in the store")
