"""A SQLite file that cannot be used: set aside, left alone or refused, with one clear line."""

from __future__ import annotations

import logging
import os
import pwd
import re
import sqlite3
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from doi_proxy.cache.store import StoreLost, StoreUnavailable
from doi_proxy.errors import StoreError
from doi_proxy.features.registry.answers import RegistryAnswers
from doi_proxy.features.sqlite import file as file_module
from doi_proxy.features.sqlite.file import exclusive_lock, mark_damaged, open_to_read
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.store.stored_entry import STORE_FORMAT
from tests.cache.entries import entry
from tests.clock import Clock
from tests.features.sqlite.sqlite_stores import fill, keys, opened

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite3"


def set_aside(path: Path) -> list[str]:
    return sorted(found.name for found in path.parent.glob("*.corrupt-*") if not found.name.endswith(("-wal", "-shm")))


def garble(path: Path) -> None:
    path.write_bytes(b"this is no database " * 1_000)


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def overwrite_the_middle(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 8192)


def drop_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE totals")


def make_newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {STORE_FORMAT + 1}")


@pytest.mark.parametrize("harm", [garble, cut, overwrite_the_middle, drop_a_table])
async def test_a_damaged_file_is_set_aside_and_a_fresh_one_started(
    harm: Callable[[Path], None], path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(path, clock, 500)
    harm(path)
    damaged = path.read_bytes()
    with caplog.at_level(logging.WARNING):
        async with opened(path, clock) as store:
            assert await keys(store) == []
            await store.put(entry())
            await store.flush()
            assert await store.get("10.1000/182") == entry()
    assert set_aside(path) == ["store.sqlite3.corrupt-20231114T221320Z"]
    assert path.with_name(set_aside(path)[0]).stat().st_size == len(damaged)
    assert len(caplog.records) == 1
    assert "store.sqlite3.corrupt-20231114T221320Z" in caplog.text


@pytest.mark.parametrize(
    "meet",
    [
        lambda store: store.write_note("a", b"1"),
        lambda store: store.registry.find_near("10.1000/1", ["10.1000/2"]),
        lambda store: store.registry.count("10.1000"),
    ],
    ids=["note", "near", "count"],
)
async def test_damage_that_another_connection_of_the_store_meets_loses_the_file(
    meet: Callable[[SqliteStore], Awaitable[object]], path: Path, clock: Clock
) -> None:
    """The connection that reads entries has the first page in its memory. Notes have a connection of their own."""
    await fill(path, clock)
    async with opened(path, clock, records=RegistryAnswers) as store:
        assert len(await keys(store)) == 3
        with path.open("r+b") as file:
            file.write(b"\xff" * 200)
        with pytest.raises(StoreError):
            await meet(store)
        with pytest.raises(StoreLost, match="is damaged"):
            await store.changes(None)
    async with opened(path, clock) as store:
        assert await keys(store) == []
    assert len(set_aside(path)) == 1


async def test_a_path_that_cannot_be_written_is_one_clear_error(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "store.sqlite3", tmp_path):
        with pytest.raises(StoreError, match="cannot be opened for writing"):
            SqliteStore(path, clock=clock, max_bytes=1_000)


async def test_a_newer_store_that_was_found_damaged_is_refused_too(path: Path, clock: Clock) -> None:
    await fill(path, clock)
    make_newer(path)
    path.with_name("store.sqlite3.damaged").touch()
    with pytest.raises(StoreError, match="another format"):
        SqliteStore(path, clock=clock, max_bytes=1_000)
    assert set_aside(path) == []


@pytest.fixture
def umask_0() -> Iterator[None]:
    """Nothing is taken from the permissions that a program asks for."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask_0")
async def test_only_the_owner_can_read_the_files_whatever_the_umask_is(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "var" / "cache" / "store.sqlite3"
    async with opened(path, clock) as store:
        await store.put(entry())
        await store.flush()
        mark_damaged(path)
        modes = {found.name: stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()}
    tails = ("", "-wal", "-shm", ".lock", ".damaged")
    assert modes == {f"store.sqlite3{tail}": 0o600 for tail in tails}
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in (path.parent, path.parent.parent)} == {0o700}


@pytest.mark.parametrize("tail", [".lock"])
async def test_a_symbolic_link_beside_the_store_is_refused(path: Path, clock: Clock, tail: str) -> None:
    victim = path.with_name("victim")
    victim.write_text("untouched")
    path.with_name(f"store.sqlite3{tail}").symlink_to(victim)
    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteStore(path, clock=clock, max_bytes=1_000)
    assert victim.read_text() == "untouched"


@pytest.mark.parametrize("tail", [".lock", "-wal", "-shm"])
async def test_a_folder_in_the_place_of_a_file_beside_the_store_is_named(path: Path, clock: Clock, tail: str) -> None:
    await fill(path, clock)
    beside = path.with_name(f"store.sqlite3{tail}")
    beside.unlink(missing_ok=True)
    beside.mkdir()
    with pytest.raises(StoreUnavailable, match=re.escape(str(beside))):
        SqliteStore(path, clock=clock, max_bytes=1_000)


async def test_a_lock_file_is_not_emptied(path: Path, clock: Clock) -> None:
    path.with_name("store.sqlite3.lock").write_text("something else")
    await fill(path, clock)
    assert path.with_name("store.sqlite3.lock").read_text() == "something else"


async def test_a_lock_that_another_process_holds_is_not_waited_for_without_end(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "LOCK_ATTEMPTS", 2)
    with exclusive_lock(path):
        with pytest.raises(StoreUnavailable, match=r"another process is opening it .* `fuser .*lock` names it"):
            await fill(path, clock)
        with pytest.raises(TimeoutError), exclusive_lock(path, waits=False):
            pass
    await fill(path, clock)


async def test_damage_of_a_renamed_file_is_not_blamed_on_the_store_that_took_its_place(
    path: Path, clock: Clock
) -> None:
    await fill(path, clock, 500)
    async with opened(path, clock) as first:
        overwrite_the_middle(path)
        with pytest.raises(StoreError):
            await keys(first)
        async with opened(path, clock) as second:
            await second.put(entry())
            await second.flush()
            with pytest.raises(StoreError):
                await keys(first)
            async with opened(path, clock) as third:
                assert await keys(third) == [entry().key]
    assert len(set_aside(path)) == 1


async def test_a_store_that_is_a_folder_is_named_as_one(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "store.sqlite3"
    path.mkdir()
    with pytest.raises(StoreUnavailable, match="is a folder; name a file in it"):
        async with opened(path, clock):
            pass
    assert list(path.iterdir()) == []


async def test_a_store_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "store.sqlite3"
    os.mkfifo(path)
    with pytest.raises(StoreUnavailable, match="it is not a regular file"):
        SqliteStore(path, clock=clock, max_bytes=1_000)
    with pytest.raises(StoreUnavailable, match="it is not a regular file"):
        open_to_read(path)


async def test_a_store_that_is_a_link_is_read_and_the_file_to_name_is_told(tmp_path: Path, clock: Clock) -> None:
    path, link = tmp_path / "store.sqlite3", tmp_path / "link"
    await fill(path, clock)
    link.symlink_to(path)
    with pytest.raises(
        StoreUnavailable, match=f"it is a symbolic link; name {re.escape(str(path))} itself in store_url"
    ):
        SqliteStore(link, clock=clock, max_bytes=1_000)
    open_to_read(link).close()


@pytest.mark.parametrize("tail", ["-wal", "-shm"])
async def test_a_log_that_is_a_link_is_refused_and_not_followed(tmp_path: Path, clock: Clock, tail: str) -> None:
    path, other = tmp_path / "store.sqlite3", tmp_path / "other"
    async with opened(path, clock) as store:
        await store.put(entry())
    other.write_bytes(b"of another program" * 1_000)
    Path(f"{path}{tail}").symlink_to(other)
    with pytest.raises(StoreUnavailable, match=f"{tail} is a symbolic link"):
        SqliteStore(path, clock=clock, max_bytes=1_000)
    assert other.read_bytes() == b"of another program" * 1_000
    Path(f"{path}{tail}").unlink()
    async with opened(path, clock) as store:
        assert await store.get(entry().key) == entry()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
async def test_a_store_of_another_user_says_whose_it_is_and_what_to_do(clock: Clock) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "store.sqlite3"
        await fill(path, clock)
        words = f"it belongs to root, mode 0600, and this user is nobody: chown nobody {path}"
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
        try:
            with pytest.raises(StoreError, match=words):
                open_to_read(path)
        finally:
            os.seteuid(0)
