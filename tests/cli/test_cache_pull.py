"""`doi-proxy cache pull` from a running parent and from hostile ones, and `cache export --since`."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import pytest
import uvicorn
from msgspec.structs import replace

import app.bulk.pull
import app.cache.sqlite.change_pages
from app.bulk.change_feed import ChangeFeed
from app.cache.bundle import BundleWriter
from app.cache.delta import DeltaEnd, Tombstone, change_line, end_line, start_line
from app.cache.parents import ParentState
from app.cache.registry_wire import pack_record
from app.cache.sqlite.parents import save_parent
from app.cache.sqlite.registry import RegistryTable
from app.cache.sqlite.store import SqliteStore
from app.cache.wire import to_line
from app.cli.main import main
from app.main import create
from app.registry.record import make_record
from app.settings import Settings
from app.settings.sources import ENV_PREFIX
from tests.cache.entries import entry

pytestmark = pytest.mark.anyio

TOKEN = "correct-horse-battery-staple"
#: Some minutes ago. The commands use the clock of the machine.
NOW = time.time() - 1_000
NAMES = ("10.1000/A", "10.1000/B", "10.2000/C")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment without settings, no waits between attempts, and the token of the parent in a file."""
    for name in list(os.environ):
        if name.startswith(ENV_PREFIX) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(app.bulk.pull, "WAITS", (0.0, 0.0))
    (tmp_path / "token").write_text(TOKEN + "\n")


class Place:
    """A parent's store and a child's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parent = folder / "parent.db"
        self.child = folder / "child.db"

    async def put(self, path: Path, *names: str, fetched_at: float = NOW, url: str = "http://here.example/") -> None:
        store = open_store(path)
        for name in names:
            await store.put(entry(name, url, fetched_at=fetched_at))
        await store.close()

    async def names(self, path: Path) -> list[str]:
        store = open_store(path)
        found = [one.key async for one in store.scan()]
        await store.close()
        return found

    async def url(self, path: Path, name: str) -> str | None:
        store = open_store(path)
        found = await store.get(name)
        await store.close()
        return None if found is None else str(json.loads(found.answer.values)[0]["data"]["value"])

    async def parents(self) -> tuple[ParentState, ...]:
        store = open_store(self.child)
        found = await store.parents()
        await store.close()
        return found

    async def pull(self, url: str, *options: str) -> int:
        arguments = ("cache", "pull", "--mode", "sealed", "--store-url", f"sqlite:///{self.child}")
        token = ("--token-file", str(self.folder / "token"))
        return await asyncio.to_thread(main, [*arguments, *token, *options, url])


def open_store(path: Path) -> SqliteStore:
    return SqliteStore(path, clock=time.time, max_bytes=50_000_000, gather=0.0)


def write_registry(path: Path, *names: str) -> None:
    with RegistryTable(path, clock=time.time) as table:
        table.write([(name, pack_record(make_record(name, "http://r.example/", "Crossref", 5))) for name in names])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@asynccontextmanager
async def parent_of(place: Place) -> AsyncIterator[str]:
    """A sealed proxy on the parent's store, on a free port."""
    settings = Settings(store_url=f"sqlite:///{place.parent}", mode="sealed", admin_token=TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(create(settings), log_config=None, lifespan="on"))
        task = asyncio.create_task(server.serve([listening]))
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        await task


async def nothing(_: ChangeFeed, __: str) -> None:
    """What a parent with too many pages under way has."""


# --- A real parent ------------------------------------------------------------------------------------------------


async def test_a_child_has_what_its_parent_has_and_then_its_changes_and_purges(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.parent, *NAMES)
    write_registry(place.parent, "10.3000/R")
    async with parent_of(place) as url:
        assert await place.pull(url) == 0
        assert re.search(r"new 3, .*registry 1; 1 pages, \d+ bytes", capsys.readouterr().out)
        assert await place.names(place.child) == list(NAMES)
        assert await place.url(place.child, "10.3000/R") == "http://r.example/"
        store = open_store(place.parent)
        await store.delete("10.1000/A")
        await store.delete("10.3000/R")
        await store.put(entry("10.1000/D", fetched_at=NOW))
        await store.close()
        assert await place.pull(url) == 0
        assert "new 1, kept 0, expired 0, refused 0, purged 2; 1 pages" in capsys.readouterr().out
        assert await place.names(place.child) == ["10.1000/B", "10.1000/D", "10.2000/C"]
        assert await place.url(place.child, "10.3000/R") is None


async def test_a_purge_of_a_prefix_or_of_everything_travels(place: Place) -> None:
    await place.put(place.parent, *NAMES)
    async with parent_of(place) as url:
        await place.pull(url)
        await place.put(place.child, "10.1000/OWN")
        for options, left in ((("--prefix", "10.1000"), ["10.2000/C"]), (("--all",), [])):
            purge = ("cache", "purge", "--store-url", f"sqlite:///{place.parent}", *options)
            assert await asyncio.to_thread(main, purge) == 0
            assert await place.pull(url) == 0
            assert await place.names(place.child) == left


async def test_no_record_of_the_child_that_is_newer_is_replaced_or_purged(place: Place) -> None:
    await place.put(place.child, "10.1000/A", "10.1000/B", "10.2000/C", url="http://new.example/")
    old = to_line(entry("10.1000/A", fetched_at=NOW - 50))
    with hostile(
        lambda _: page(old, *(change_line(Tombstone(one, NOW - 50)) for one in ("10.1000/B", "10.2000/", "")))
    ) as url:
        assert await place.pull(url) == 0
    for name in NAMES:
        assert await place.url(place.child, name) == "http://new.example/"


async def test_many_pages_arrive_and_a_pull_with_a_limit_is_continued(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app.cache.sqlite.change_pages, "MAX_CHANGES", 10)
    names = [f"10.1000/{number:03}" for number in range(95)]
    await place.put(place.parent, *names)
    async with parent_of(place) as url:
        assert await place.pull(url, "--pull-max-bytes", "1") == 1
        assert "run the command again" in capsys.readouterr().err
        assert len(await place.names(place.child)) == 10
        assert await place.pull(url) == 0
        assert "new 85" in capsys.readouterr().out
    assert await place.names(place.child) == names


async def test_a_child_with_a_new_store_and_a_parent_with_a_new_store_begin_again(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.parent, *NAMES)
    async with parent_of(place) as url:
        await place.pull(url)
        for file in place.folder.glob("child.db*"):
            file.unlink()
        assert await place.pull(url) == 0
        assert await place.names(place.child) == list(NAMES)
    for file in place.folder.glob("parent.db*"):
        file.unlink()
    await place.put(place.parent, "10.1000/NEW")
    capsys.readouterr()
    (state,) = await place.parents()
    async with parent_of(place) as url:
        save_parent(place.child, replace(state, url=url))
        assert await place.pull(url) == 0
    assert "everything was pulled" in capsys.readouterr().err
    assert "10.1000/NEW" in await place.names(place.child)


async def test_a_parent_that_is_busy_is_asked_again_and_a_wrong_token_or_store_is_explained(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.parent, *NAMES)
    monkeypatch.setattr(ChangeFeed, "_read", nothing)
    async with parent_of(place) as url:
        assert await place.pull(url, "--pull-busy-timeout", "0") == 1
        assert "Other pages of changes are under way" in capsys.readouterr().err
        (place.folder / "token").write_text("another")
        assert await place.pull(url) == 1
        assert "the token is wrong" in capsys.readouterr().err


# --- Deltas in files ----------------------------------------------------------------------------------------------


async def test_a_delta_in_a_file_has_the_cursor_of_the_next_and_is_imported(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.parent, *NAMES)
    write_registry(place.parent, "10.3000/R")
    parent, child = (f"sqlite:///{path}" for path in (place.parent, place.child))

    async def run(*arguments: str) -> str:
        assert await asyncio.to_thread(main, ["cache", *arguments]) == 0
        return capsys.readouterr().out

    file = str(place.folder / "delta.ndjson.gz")
    first = await run("export", "--store-url", parent, "--since", "start", "--output", file)
    assert first.startswith("4 changes exported; the next delta begins at --since c1.")
    counts = await run("import", "--mode", "sealed", "--store-url", child, file)
    assert counts == "new 3, kept 0, expired 0, refused 0, registry 1; checksum right\n"
    store = open_store(place.parent)
    await store.delete("10.1000/A")
    await store.close()
    cursor = first.split()[-1]
    assert (await run("export", "--store-url", parent, "--since", cursor, "--output", file)).startswith("1 changes")
    await run("import", "--mode", "sealed", "--store-url", child, file)
    assert await place.names(place.child) == list(NAMES[1:])


@pytest.mark.parametrize(
    ("since", "message"),
    [("yesterday", "not a cursor"), ("c1.x", "not a cursor"), ("2001-01-01", "does not go back")],
)
async def test_a_cursor_that_cannot_be_used_is_explained(
    place: Place, since: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.parent, *NAMES)
    arguments = ["cache", "export", "--store-url", f"sqlite:///{place.parent}", "--since", since]
    assert await asyncio.to_thread(main, arguments) > 0
    assert message in capsys.readouterr().err


# --- Hostile parents ----------------------------------------------------------------------------------------------


def page(*lines: bytes, since: str = "", following: str = "c1.next", more: bool = False) -> bytes:
    file = BytesIO()
    writer = BundleWriter(file)
    for line in (start_line(since), *lines, end_line(DeltaEnd(following, more))):
        writer.add_line(line)
    writer.finish()
    return file.getvalue()


@contextmanager
def hostile(answer: Callable[[str], bytes]) -> Iterator[str]:
    """A server whose answer to a target is these bytes, compressed."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = gzip.compress(answer(self.path))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


RECORD = to_line(entry("10.1000/BAD", fetched_at=NOW))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (page(RECORD).replace(b"hb.html", b"xx.html"), "checksum is wrong"),
        (page(RECORD)[:-40], "checksum is wrong"),
        (page(RECORD, since="c1.other"), "does not continue"),
        (page(RECORD, following="", more=True), "does not continue"),
        (page(RECORD).replace(b'{"delta":1', b'{"delta":2', 1), "checksum is wrong"),
        (b"<html>hello", "checksum is wrong"),
        (b"\n" * 20_000, "more than 10000 lines"),
        (b" " * 17_000_000, "larger than"),
    ],
)
async def test_nothing_of_a_page_that_is_not_right_is_applied(
    place: Place, body: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await place.put(place.child, "10.1000/OWN")
    with hostile(lambda _: body) as url:
        assert await place.pull(url) == 1
    assert message in capsys.readouterr().err
    assert await place.names(place.child) == ["10.1000/OWN"]
    assert await place.parents() == ()


async def test_a_parent_without_an_end_is_left_at_the_limit(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    def endless(target: str) -> bytes:
        since = target.partition("?cursor=")[2]
        return page(since=since, following=f"c{len(since)}{since[-40:]}x", more=True)

    with hostile(endless) as url:
        assert await place.pull(url, "--pull-max-bytes", "5000") == 1
    assert "the limit of 5000 bytes is reached" in capsys.readouterr().err


async def test_lies_about_names_and_times_do_not_stay(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    name = "10.1000/FUTURE"
    lie = to_line(entry(name, "http://lie.example/", fetched_at=NOW + 10 * 365 * 86_400))
    truth = to_line(entry(name, "http://true.example/", fetched_at=NOW))
    bad_name = RECORD.replace(b"10.1000/BAD", b"10.1000/\\u0007")
    bad_url = b'{"registry":"10.1000/X","url":"http://x.example/\\n","agency":"A\\u0000","date":1}\n'
    pages = [page(lie, bad_name, bad_url), page(truth, since="c1.next")]
    with hostile(lambda _: pages.pop(0)) as url:
        assert await place.pull(url) == 1
        assert capsys.readouterr().err.count("a line is refused") == 2
        assert await place.pull(url) == 0
    assert await place.url(place.child, name) == "http://true.example/"
