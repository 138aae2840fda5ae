"""SIGTERM drains and loses no request, SIGHUP reloads in place, and systemd is notified. Uses real processes."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
from collections.abc import Awaitable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.certificates import self_signed
from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import START_DEADLINE, Proxy, until
from tests.cluster.raw_http import read_answer
from tests.constants import GRACE, LINGER

pytestmark = [pytest.mark.anyio, pytest.mark.process]

NAME: Final = "10.1234/drained"
URL: Final = "https://www.example.org/drained"
#: The deadline of every awaited event, in seconds, on a busy machine.
PATIENCE: Final = 30.0
#: The number of answers before a signal.
SOME: Final = 50


def write_settings(path: Path, **server: object) -> Path:
    """A settings file with these keys in the table [server]."""
    path.write_text("[server]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in server.items()), "utf-8")
    return path


async def logged(proxy: Proxy, words: str) -> None:
    """Wait until the log has these words."""

    async def found() -> bool:
        assert proxy.process.runs, proxy.process.log
        return words in proxy.process.log

    await until(found, START_DEADLINE, f"{words!r} in the log")


@pytest.fixture
def start(start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str) -> Any:
    """Start a proxy with a record of NAME, and wait until it answers."""

    async def started(**settings: object) -> Proxy:
        upstream = start_upstream({NAME: URL})
        proxy = start_proxy(upstream.url, store_file, **settings)
        await upstream.ready()
        await logged(proxy, "startup complete")
        if "tls_cert" not in settings:
            await proxy.ready()
        return proxy

    return started


# --- The end -------------------------------------------------------------------------------------------------------


@dataclass
class Load:
    """Clients that request NAME. `lost` counts requests without the right answer."""

    port: int
    answers: int = 0
    lost: list[str] = field(default_factory=list)

    async def call_on_one_connection(self) -> None:
        """One connection, until an answer says that it is the last."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)

        async def once() -> Any:
            writer.write(b"GET /" + NAME.encode() + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return await read_answer(reader)

        with closing(writer):
            while await self._count(once()) != "close":
                pass

    async def _count(self, asking: Awaitable[Any]) -> str:
        try:
            answered = await asking
        except (OSError, EOFError, TimeoutError) as error:
            self.lost.append(repr(error))
            return "close"
        self.answers += 1
        if answered.location != URL:
            self.lost.append(repr(answered))
        return str(answered.headers.get("connection", ""))

    async def more(self) -> None:
        """Wait for some further answers."""
        enough = self.answers + SOME

        async def answered() -> bool:
            return self.answers >= enough

        await until(answered, PATIENCE, f"answers; lost: {self.lost}")


async def test_open_connections_lose_no_request(start: Any) -> None:
    proxy = await start()
    load = Load(proxy.port)
    async with asyncio.TaskGroup() as callers:
        for _ in range(4):
            callers.create_task(load.call_on_one_connection())
        await load.more()
        proxy.process.send(signal.SIGTERM)
    assert load.lost == []
    assert await asyncio.to_thread(proxy.process.ended) == 0


async def test_an_open_connection_sees_the_end_at_readyz_and_a_second_signal_ends_at_once(start: Any) -> None:
    proxy = await start(**{LINGER: 3600})
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)

    async def request(target: str) -> Any:
        writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return await read_answer(reader)

    with closing(writer):
        assert (await request("/healthz")).status == 200
        _, idle = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.process.send(signal.SIGTERM)

        async def drains() -> bool:
            answered = await request("/readyz")
            return bool(answered.status == 503 and answered.json["detail"]["service"] == "draining")

        await until(drains, PATIENCE, "/readyz is 503")
        with closing(idle):
            proxy.process.send(signal.SIGINT)
            await asyncio.to_thread(proxy.process.ended)


async def test_an_endless_body_does_not_delay_the_shutdown(start: Any) -> None:
    proxy = await start(**{GRACE: 0.5})
    _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    with closing(writer):
        head = f"POST /api/handles/{NAME} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n1"
        writer.write(head.encode())
        await writer.drain()
        await asyncio.to_thread(proxy.process.terminate)


# --- The reload ----------------------------------------------------------------------------------------------------


async def test_a_reload_keeps_the_process_and_a_broken_file_the_settings(start: Any, tmp_path: Path) -> None:
    path = write_settings(tmp_path / "proxy.toml", log_level="info")
    proxy = await start(config=path)
    write_settings(path, log_level="loud")
    proxy.process.send(signal.SIGHUP)
    await logged(proxy, f"the previous settings stay in force: {path}, line 2: log_level: use one of these: 'debug'")
    assert (await proxy.ask(f"/{NAME}")).location == URL
    write_settings(path, log_level="error", mode="sealed")
    proxy.process.send(signal.SIGHUP)
    await logged(proxy, "these settings changed and need a restart: mode")
    assert (await proxy.ask(f"/{NAME}")).location == URL, "the former mode is in force"
    await asyncio.to_thread(proxy.process.terminate)
    assert "Shutting down" not in proxy.process.log, "a line of severity info"


async def test_a_reload_serves_the_new_certificate(start: Any, tmp_path: Path) -> None:
    (tmp_path / "next").mkdir()
    (chain, key), (next_chain, next_key) = self_signed(tmp_path), self_signed(tmp_path / "next")
    first, second = chain.read_text("utf-8"), next_chain.read_text("utf-8")
    proxy = await start(tls_cert=chain, tls_key=key)

    async def serves(expected: str) -> bool:
        shown = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", proxy.port), timeout=PATIENCE)
        return shown == expected

    assert await serves(first)
    for source, target in ((next_chain, chain), (next_key, key)):
        target.write_bytes(source.read_bytes())
    proxy.process.send(signal.SIGHUP)

    async def reloaded() -> bool:
        log: str = proxy.process.log
        return f"new connections get the certificate in {chain}" in log

    await until(reloaded, PATIENCE, "the second certificate is in use")
    assert await serves(second)
    key.write_text("not a key", "utf-8")
    proxy.process.send(signal.SIGHUP)
    await logged(proxy, "the previous settings stay in force: --tls-cert")
    assert await serves(second)


# --- Notifications to systemd --------------------------------------------------------------------------------------


@pytest.mark.parametrize("abstract", [False, True])
async def test_systemd_is_notified_of_start_reload_and_end(
    abstract: bool, monkeypatch: pytest.MonkeyPatch, start: Any, tmp_path: Path
) -> None:
    address = f"@doi-proxy-test-{tmp_path}"[:100] if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address.replace("@", "\0", 1))
        manager.settimeout(PATIENCE)

        async def next_state() -> dict[str, str]:
            datagram = (await asyncio.to_thread(manager.recv, 4096)).decode()
            return dict(line.split("=", 1) for line in datagram.split("\n"))

        monkeypatch.setenv("NOTIFY_SOCKET", address)
        proxy = await start()
        ready = {"READY": "1", "STATUS": f"serving on {proxy.url}"}
        assert await next_state() == ready
        proxy.process.send(signal.SIGHUP)
        reloading = await next_state()
        assert (set(reloading), reloading["RELOADING"]) == ({"RELOADING", "MONOTONIC_USEC"}, "1")
        assert await next_state() == ready
        proxy.process.send(signal.SIGTERM)
        assert await next_state() == {"STOPPING": "1", "STATUS": "draining"}
        assert await asyncio.to_thread(proxy.process.ended) == 0
