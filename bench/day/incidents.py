"""The incidents of the day: how each begins and ends, and what the log and the events have to say about it."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.connection import Connection
from bench.day.upstream import Upstream
from tests.cluster.processes import Proxy
from tests.features.valkey.valkey_sentinel import SentinelSet

#: Bytes of the file system of a store that fills up.
_DISK: Final = 24 * 2**20
_FLOODING: Final = 30
_FLOOD_PAUSE: Final = 0.03
_CHURNING: Final = 60
_CHURN_PAUSE: Final = 0.3
CLIENT_RATE: Final = 30
CONFIGURED: Final = "[client]\nrate = {}\nburst = 60\n"


@dataclass(frozen=True)
class Site:
    """What an incident acts on. `sentinels` is None for a store in a file."""

    folder: Path
    upstream: Upstream
    proxies: list[Proxy]
    sentinels: SentinelSet | None = None
    #: Whether `disk` is a small file system of its own.
    has_own_disk: bool = False

    @property
    def first(self) -> Proxy:
        """The proxy that an incident of one machine concerns."""
        return self.proxies[0]

    @property
    def config(self) -> Path:
        """The configuration file of all proxies."""
        return self.folder / "doi-proxy.toml"

    @property
    def disk(self) -> Path:
        """The folder of the store in a file."""
        return self.folder / "disk"

    @property
    def store(self) -> Path:
        """The file of the store."""
        return self.disk / "store.sqlite3"


class NotPlayed(Exception):
    """Why an incident cannot be played on this machine."""


@dataclass(frozen=True, slots=True)
class Incident:
    """`lasts` is a context that begins and ends it. The rest is what the operator should read.

    Each machine writes one line in which `begins` is found, and one with `ends`; "" for no such line. `event` begins
    the words of an event: its kind, cause and sign; "" for none.
    """

    name: str
    lasts: Callable[[Site], AbstractAsyncContextManager[None]]
    begins: str = ""
    ends: str = ""
    event: str = ""
    #: Not every machine meets it.
    can_pass_unnoticed: bool = False
    #: The least seconds that it lasts.
    seconds: float = 5.0


def _of_upstream(kind: str, share: float = 1.0, **options: Any) -> Callable[[Site], AbstractAsyncContextManager[None]]:
    return lambda site: site.upstream.failing(kind, share, **options)


@asynccontextmanager
async def _store_deleted(site: Site) -> AsyncIterator[None]:
    for file in site.disk.glob("store.sqlite3*"):
        file.unlink()
    yield


@asynccontextmanager
async def _disk_full(site: Site) -> AsyncIterator[None]:
    if not site.has_own_disk:
        raise NotPlayed("a file system of its own for the store needs the rights of root")
    filler = site.disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


@asynccontextmanager
async def _store_locked(site: Site) -> AsyncIterator[None]:
    connection = sqlite3.connect(site.store, isolation_level=None, timeout=20)
    connection.execute("BEGIN EXCLUSIVE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


@asynccontextmanager
async def _reloaded(site: Site) -> AsyncIterator[None]:
    site.config.write_text(CONFIGURED.format(CLIENT_RATE + 10))
    site.first.process.send(signal.SIGHUP)
    yield


@asynccontextmanager
async def _reload_failed(site: Site) -> AsyncIterator[None]:
    site.config.write_text(CONFIGURED.format('"many"'))
    site.first.process.send(signal.SIGHUP)
    yield
    site.config.write_text(CONFIGURED.format(CLIENT_RATE))
    site.first.process.send(signal.SIGHUP)


@asynccontextmanager
async def _restarted(site: Site) -> AsyncIterator[None]:
    await asyncio.to_thread(site.first.process.terminate)
    site.first.restart()
    yield
    await site.first.ready()


@asynccontextmanager
async def _machine_killed(site: Site) -> AsyncIterator[None]:
    site.first.process.kill()
    yield
    site.first.restart()
    await site.first.ready()


@asynccontextmanager
async def _machine_stopped(site: Site) -> AsyncIterator[None]:
    site.first.process.send(signal.SIGSTOP)
    yield
    site.first.process.send(signal.SIGCONT)


@asynccontextmanager
async def _flood(site: Site) -> AsyncIterator[None]:
    """One client requests as many new names as it can."""

    async def ask(number: int) -> None:
        proxy = site.proxies[number % len(site.proxies)]
        connection = Connection(proxy.port, "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: http")
        turn = 0
        while True:
            turn += 1
            await connection.ask(f"/10.7777/flood.{number}.{turn}")
            await asyncio.sleep(_FLOOD_PAUSE)

    async with _tasks(ask, _FLOODING):
        yield


@asynccontextmanager
async def _churn(site: Site) -> AsyncIterator[None]:
    """Connections come and go without a byte."""

    async def connect(number: int) -> None:
        proxy = site.proxies[number % len(site.proxies)]
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                await asyncio.sleep(_CHURN_PAUSE)
                writer.close()
            await asyncio.sleep(0)

    async with _tasks(connect, _CHURNING):
        yield


@asynccontextmanager
async def _tasks(work: Callable[[int], Any], number: int) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(work(at)) for at in range(number)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _servers(site: Site) -> SentinelSet:
    assert site.sentinels is not None
    return site.sentinels


@asynccontextmanager
async def _valkey_stopped(site: Site) -> AsyncIterator[None]:
    both = (_servers(site).primary, _servers(site).replica)
    for server in both:
        server.send(signal.SIGSTOP)
    yield
    for server in both:
        server.send(signal.SIGCONT)


@asynccontextmanager
async def _valkey_failed_over(site: Site) -> AsyncIterator[None]:
    """The primary is killed, whichever of the two it is now, and comes back as a replica."""
    primary = _primary(site)
    primary.kill()
    yield
    await asyncio.to_thread(primary.restart)


@asynccontextmanager
async def _valkey_killed(site: Site) -> AsyncIterator[None]:
    both = (_servers(site).primary, _servers(site).replica)
    for server in both:
        server.kill()
    yield
    for server in both:
        await asyncio.to_thread(server.restart)


@asynccontextmanager
async def _valkey_full(site: Site) -> AsyncIterator[None]:
    client = _primary(site).client
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)
    yield
    client.config_set("maxmemory", 0)


@asynccontextmanager
async def _valkey_emptied(site: Site) -> AsyncIterator[None]:
    _primary(site).client.flushall()
    yield


@asynccontextmanager
async def _valkey_disconnects(site: Site) -> AsyncIterator[None]:
    _primary(site).client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    yield


@asynccontextmanager
async def _sentinels_killed(site: Site) -> AsyncIterator[None]:
    for sentinel in _servers(site).sentinels:
        sentinel.kill()
    yield
    for sentinel in _servers(site).sentinels:
        await asyncio.to_thread(sentinel.restart)


def _primary(site: Site) -> Any:
    both = (_servers(site).primary, _servers(site).replica)
    return next(server for server in both if server.client.info("replication")["role"] == "master")


_UP: Final = "is up again after"
_SENT: Final = "queries about new names are sent again"
_STORE_DOWN: Final = "The store is down"
_STORE_UP: Final = "The store is up again"
_OF_UPSTREAM: Final = (
    Incident(
        "upstream resets", _of_upstream("reset"), "is down: upstream-unreachable", _UP, "outage upstream-unreachable"
    ),
    Incident("upstream takes 3 s", _of_upstream("delay"), "are refused: upstream-slow", _SENT, "refusal upstream-slow"),
    Incident("upstream is silent", _of_upstream("hang"), "are refused: upstream-slow", _SENT, "refusal upstream-slow"),
    Incident(
        "upstream answers 503",
        _of_upstream("status", status=503),
        "is down: upstream-refused: .* 503",
        _UP,
        "outage upstream-refused 503",
    ),
    Incident(
        "upstream answers 429",
        _of_upstream("status", status=429, retry_after=15),
        # A machine may hear of the pause from the other one.
        "gets no queries for .*: (upstream-refused: .* 429|upstream-paused)",
        "gets queries again",
        "pause upstream-",
    ),
    Incident(
        "upstream answers 403",
        _of_upstream("status", status=403),
        "is down: upstream-refused: .* 403; the upstream may block this address",
        _UP,
        "outage upstream-refused 403",
    ),
    Incident(
        "login portal",
        _of_upstream("html"),
        "is down: upstream-bad-answer: .* login portal",
        _UP,
        "outage upstream-bad-answer page",
    ),
    Incident(
        "nothing listens",
        lambda site: site.upstream.away(),
        "is down: upstream-unreachable",
        _UP,
        "outage upstream-unreachable",
    ),
)
_OF_UPSTREAM_MORE: Final = (
    Incident(
        "upstream sends garbage",
        _of_upstream("garbage"),
        "is down: upstream-bad-answer",
        _UP,
        "outage upstream-bad-answer",
    ),
    Incident(
        "upstream answers about another name",
        _of_upstream("wrong_name"),
        "is down: upstream-bad-answer: .* another name",
        _UP,
        "outage upstream-bad-answer",
    ),
    Incident(
        "portal that redirects",
        _of_upstream("redirect", status=302, location="https://login.example/"),
        "is down: upstream-refused: .* another origin",
        _UP,
        "outage upstream-refused redirect",
    ),
    Incident("every fifth query fails, in any way", _of_upstream("any", 0.2)),
)
_OF_CLIENTS: Final = (
    Incident("one client asks for new names", _flood),
    Incident("connections come and go", _churn),
)
_OF_RELOADS: Final = (
    Incident("reload", _reloaded),
    Incident("reload of a wrong file", _reload_failed, "reload failed", "", "reload-failed"),
)
#: Restarts come first: at the end, memory has to be that of processes that have run for long.
SQLITE: Final = (
    Incident("service restarted", _restarted),
    *_OF_UPSTREAM,
    *_OF_UPSTREAM_MORE,
    Incident(
        "store deleted",
        _store_deleted,
        "was deleted while it was open",
        "The store is open after",
        "store store-deleted",
    ),
    Incident("disk of the store full", _disk_full, _STORE_DOWN + ".*full", _STORE_UP, "store"),
    Incident("store locked", _store_locked, _STORE_DOWN + ".*locked", _STORE_UP, "store"),
    *_OF_RELOADS,
    *_OF_CLIENTS,
)
VALKEY: Final = (
    Incident("machine stopped", _machine_stopped),
    Incident("machine killed", _machine_killed),
    *_OF_UPSTREAM,
    Incident("Valkey stopped, both", _valkey_stopped, _STORE_DOWN, _STORE_UP, "store"),
    Incident("Valkey failed over", _valkey_failed_over, _STORE_DOWN, _STORE_UP, "store"),
    Incident("Valkey killed, both", _valkey_killed, _STORE_DOWN, _STORE_UP, "store"),
    Incident("Valkey full", _valkey_full, _STORE_DOWN, _STORE_UP, "store"),
    Incident("Valkey emptied", _valkey_emptied),
    Incident(
        "Valkey closes all connections", _valkey_disconnects, _STORE_DOWN, _STORE_UP, "store", can_pass_unnoticed=True
    ),
    Incident("Sentinels killed", _sentinels_killed, _STORE_DOWN, _STORE_UP, "store", can_pass_unnoticed=True),
    *_OF_RELOADS,
    *_OF_CLIENTS,
)


@contextmanager
def own_disk(folder: Path) -> Iterator[bool]:
    """Make the folder and mount a small file system on it, if this user may. Yields whether it is mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(folder)]
    is_mounted = bool(shutil.which("mount")) and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
