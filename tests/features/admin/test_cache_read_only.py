"""Commands that only read change no file, and none changes a store of another format."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from doi_proxy.commands.main import main
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.store.stored_entry import STORE_FORMAT
from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import fill, opened

READS = [
    ["show"],
    ["show", "10.1000/00001"],
    ["export", "--output", "OUT"],
    ["export", "--prefix", "10.1000", "--output", "OUT"],
]
WRITES = [["import", "BUNDLE"], ["purge", "10.1000/1"], ["purge", "--all"], ["warm", "LIST"]]


def contents(folder: Path) -> dict[str, bytes]:
    return {found.name: found.read_bytes() for found in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store of three records and nothing else."""
    folder = tmp_path / "store"
    asyncio.run(fill(folder / "store.sqlite3", Clock(time.time())))
    for found in folder.iterdir():
        if found.name != "store.sqlite3":
            found.unlink()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> dict[str, str]:
    """The files that commands take, by their names in READS and WRITES."""
    (tmp_path / "list.txt").write_text("10.1000/1\n")
    (tmp_path / "bundle").write_bytes(b"")
    return {"OUT": f"{tmp_path}/out", "LIST": f"{tmp_path}/list.txt", "BUNDLE": f"{tmp_path}/bundle"}


def run(folder: Path, command: list[str], outside: dict[str, str]) -> int:
    words = [outside.get(word, word) for word in command]
    return main(["cache", words[0], "--store-url", f"sqlite:///{folder}/store.sqlite3", *words[1:]])


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_a_command_that_reads_creates_and_changes_nothing(
    command: list[str], folder: Path, outside: dict[str, str]
) -> None:
    before = contents(folder)
    assert run(folder, command, outside) == 0
    assert contents(folder) == before


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_a_command_that_reads_leaves_a_damaged_store(
    command: list[str], folder: Path, outside: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with (folder / "store.sqlite3").open("r+b") as file:
        file.truncate(8192)
    before = contents(folder)
    assert run(folder, command, outside) != 0
    assert "is damaged" in capsys.readouterr().err
    assert contents(folder) == before


@pytest.mark.parametrize("command", READS + WRITES, ids=" ".join)
def test_no_command_changes_a_store_of_another_format(
    command: list[str], folder: Path, outside: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(folder / "store.sqlite3")) as file:
        file.execute(f"PRAGMA user_version = {STORE_FORMAT + 1}")
    for tail in ("-wal", "-shm"):
        (folder / f"store.sqlite3{tail}").unlink(missing_ok=True)
    before = contents(folder)
    status = run(folder, command, outside)
    after = contents(folder)
    assert after["store.sqlite3"] == before["store.sqlite3"]
    if command in READS:
        assert (status, after) == (2, before)
        assert f"the store is {folder}/store.sqlite3.1, which does not exist" in capsys.readouterr().err


@pytest.mark.anyio
async def test_a_reader_sees_what_a_running_proxy_wrote(tmp_path: Path) -> None:

    clock, path = Clock(), tmp_path / "store.sqlite3"
    await fill(path, clock)
    reader = SqliteStore(path, clock=clock, max_bytes=1_000_000, read_only=True)
    assert await reader.get("10.1000/00001") is not None
    async with opened(path, clock) as proxy:
        await proxy.put(entry())
        await proxy.flush()
        assert await reader.get("10.1000/182") == entry()
        assert (await reader.stats()).entries == 4
    await reader.close()
