"""What the tests of `doi-proxy cache pull` share: stores, running primaries, and servers that are not primaries."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Final

import uvicorn

from app.assembly.command_stores import CommandStores
from app.assembly.settings import Settings
from app.assembly.stores import read_tables
from app.cli.main import main
from app.features.bundles.bundle import BundleWriter
from app.features.bundles.delta import VERSION, DeltaEnd, DeltaStart, delta_line
from app.features.follow.command import pull
from app.features.follow.primaries import PrimaryState, read_primaries, save_primary
from app.features.follow.pull import PullLimits
from app.features.registry.record import make_record
from app.features.registry.sqlite_table import RegistryTable
from app.features.registry.wire import to_row
from app.features.sqlite.store import SqliteStore
from app.main import create
from tests.cache.entries import entry
from tests.parts import command_context

TOKEN: Final = "correct-horse-battery-staple"
#: Some minutes ago. The commands use the clock of the machine.
NOW: Final = time.time() - 1_000
NAMES: Final = ("10.1000/A", "10.1000/B", "10.2000/C")
#: What a handler of `raw_server` gets: the connection, and the target of the request.
Script = Callable[[socket.socket, str], None]


class Place:
    """A primary's store and a replica's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.primary = folder / "primary.db"
        self.replica = folder / "replica.db"

    async def put(self, path: Path, *names: str, fetched_at: float = NOW, url: str = "http://here.example/") -> None:
        """Put records into a store."""
        store = open_store(path)
        for name in names:
            await store.put(entry(name, url, fetched_at=fetched_at))
        await store.close()

    async def names(self, path: Path) -> list[str]:
        """The names of the entries of a store."""
        store = open_store(path)
        found = [one.key async for one in store.scan()]
        await store.close()
        return found

    async def url(self, path: Path, name: str) -> str | None:
        """The URL that a store answers with, from an entry or a registry record."""
        store = open_store(path)
        found = await store.get(name)
        await store.close()
        return None if found is None else str(json.loads(found.answer.values)[0]["data"]["value"])

    async def primaries(self) -> tuple[PrimaryState, ...]:
        """What the replica's store remembers about its primaries."""
        async with CommandStores(Settings(store_url=f"sqlite:///{self.replica}")).open() as cache:
            return await read_primaries(cache)

    async def save_primary(self, state: PrimaryState) -> None:
        """Save the state of a primary in the replica's store."""
        async with CommandStores(Settings(store_url=f"sqlite:///{self.replica}")).open() as cache:
            await save_primary(cache, state)

    async def pull_within(self, url: str, limits: PullLimits) -> int:
        """Run the command with other limits. Returns its exit status."""
        settings = Settings(mode="sealed", store_url=f"sqlite:///{self.replica}")
        return await pull(command_context(settings), url, str(self.folder / "token"), restart=False, limits=limits)

    async def pull(self, url: str, *options: str, store: str | None = None) -> int:
        """Run the command. Returns its exit status."""
        arguments = ("cache", "pull", "--mode", "sealed", "--store-url", store or f"sqlite:///{self.replica}")
        token = ("--token-file", str(self.folder / "token"))
        return await asyncio.to_thread(main, [*arguments, *token, *options, url])


def open_store(path: Path) -> SqliteStore:
    """A store that writes at once."""
    return SqliteStore(path, clock=time.time, max_bytes=50_000_000, gather=0.0, tables=read_tables())


def write_registry(path: Path, *names: str) -> None:
    """Write registry records."""
    with RegistryTable(path, clock=time.time) as table:
        table.write([to_row(make_record(name, "http://r.example/", "Crossref", 5)) for name in names])


@asynccontextmanager
async def serving(path: Path, *, at: int = 0, **settings: int) -> AsyncIterator[str]:
    """A sealed proxy on a store, on a free port or the port `at`."""
    chosen = Settings(store_url=f"sqlite:///{path}", mode="sealed", admin_replica_token=TOKEN, **settings)
    with socket.create_server(("127.0.0.1", at)) as listening:
        server = uvicorn.Server(uvicorn.Config(create(chosen), log_config=None, lifespan="on"))
        task = asyncio.create_task(server.serve([listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


def page(*lines: bytes, since: str = "", following: str = "c1.next", more: bool = False) -> bytes:
    """A page that is right."""
    file = BytesIO()
    writer = BundleWriter(file)
    for line in (delta_line(DeltaStart(VERSION, since)), *lines, delta_line(DeltaEnd(following, more))):
        writer.add_line(line)
    writer.finish()
    return file.getvalue()


@contextmanager
def raw_server(script: Script) -> Iterator[str]:
    """A server that lets `script` write its answers, and closes the connection afterwards."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.close_connection = True
            try:
                script(self.connection, self.path)
            except OSError:
                return  # the client has left

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def hostile(answer: Callable[[str], bytes]) -> Iterator[str]:
    """A server whose answer to a target is these bytes, compressed."""

    def script(connection: socket.socket, target: str) -> None:
        body = gzip.compress(answer(target))
        fields = "Content-Type: application/x-ndjson\r\nContent-Encoding: gzip"
        connection.sendall(f"HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    with raw_server(script) as url:
        yield url
