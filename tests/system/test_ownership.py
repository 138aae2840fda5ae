"""Files that a command of root creates in the folder of the service's user belong to that user."""

from __future__ import annotations

import asyncio
import errno
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from doi_proxy.features.bundles.bundle import BundleWriter
from doi_proxy.features.sqlite.store import SqliteStore
from doi_proxy.system.files import create_file, make_folders, open_output, replace_private
from tests.cache.entries import entry

#: Another user than root, which has no account here.
USER = 64_321
ROOT_DIRECTORY = Path(__file__).parents[2]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the user, below one that every user can enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        os.chown(made, USER, USER)
        yield Path(made)


def owners(folder: Path) -> dict[str, tuple[int, int]]:
    return {file.name: (file.stat().st_uid, file.stat().st_gid) for file in folder.rglob("*")}


@needs_root
def test_what_root_creates_belongs_to_the_owner_of_the_folder(folder: Path) -> None:
    make_folders(folder / "a" / "b")
    create_file(folder / "a" / "b" / "file")
    os.close(open_output(folder / "list"))
    assert owners(folder) == dict.fromkeys(("a", "b", "file", "list"), (USER, USER))


@needs_root
def test_an_existing_file_keeps_its_owner(folder: Path) -> None:
    (folder / "file").touch()
    create_file(folder / "file")
    assert owners(folder) == {"file": (0, 0)}


@needs_root
def test_the_owner_of_a_folder_cannot_get_a_file_by_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0o600)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "dangling").symlink_to(tmp_path / "new")
    create_file(folder / "link")
    create_file(folder / "dangling")
    assert owners(tmp_path) == {"secret": (0, 0)}


@needs_root
@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP], ids=errno.errorcode.get)
def test_what_cannot_be_given_away_is_used_all_the_same(
    number: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a user namespace without the owner of the folder (user_namespaces(7)), no file could be written."""

    def refuse(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fchown", refuse)
    make_folders(folder / "a")
    create_file(folder / "a" / "file")
    replace_private(folder / "a" / "state", b"content")
    assert owners(folder) == dict.fromkeys(("a", "file", "state"), (0, 0))


def test_a_user_keeps_its_own_files(tmp_path: Path) -> None:
    make_folders(tmp_path / "a" / "b")
    create_file(tmp_path / "a" / "b" / "file")
    assert owners(tmp_path) == dict.fromkeys(("a", "b", "file"), (os.geteuid(), os.getegid()))
    assert (tmp_path / "a" / "b" / "file").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


@needs_root
@pytest.mark.process
def test_the_service_uses_a_store_that_an_import_of_root_has_created(folder: Path) -> None:
    """The first import after a restore on new hardware: the files were root's, and the service could not start."""
    path = folder / "var" / "store.sqlite3"
    bundle = folder / "bundle.ndjson"
    with bundle.open("wb") as file:
        writer = BundleWriter(file)
        writer.add(entry(fetched_at=time.time()))
        writer.finish()
    os.chown(bundle, USER, USER)
    command = (sys.executable, "-m", "doi_proxy", "cache", "import", str(bundle), "--store-url", f"sqlite:///{path}")
    imported = subprocess.run(command, check=False, cwd=ROOT_DIRECTORY, capture_output=True, text=True)
    assert imported.returncode == 0, imported.stderr
    assert set(owners(folder).values()) == {(USER, USER)}
    user = multiprocessing.get_context("fork").Process(target=write_as_user, args=(path,))
    user.start()
    user.join()
    assert user.exitcode == 0


def write_as_user(path: Path) -> None:
    """Do what the service does at its start, as the user of the service."""
    os.setgid(USER)
    os.setuid(USER)

    async def write() -> None:
        store = SqliteStore(path, clock=lambda: 0.0, max_bytes=100_000_000)
        assert (await store.stats()).entries
        await store.write_note("seen", b"by the user")
        await store.flush()
        await store.close()

    asyncio.run(write())
