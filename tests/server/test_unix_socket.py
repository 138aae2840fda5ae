"""The service on a Unix socket: its front proxy is trusted, and only the total number of connections is limited."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from bench.attacks.world import Door
from bench.attacks.world import Proxy as Target
from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ConfigurationError
from doi_proxy.server.listening import UNIX, AddressUnavailable, listen, release
from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.front_proxy import program
from tests.cluster.processes import START_DEADLINE, Proxy, until
from tests.constants import PER_CLIENT
from tests.features.setup.generated_front import GeneratedFront
from tests.hostile.clients import head, is_ended, read, send, statuses

NAME: Final = "10.1234/socket"
TARGET: Final = f"/{NAME}"
CAP: Final = 20
DENIED: Final = "127.0.3.1"
PATIENCE: Final = 30.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path leaves room for the name of a Unix socket, and that a front proxy can enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


Start = Callable[..., Proxy]


@pytest.fixture
def start(start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str, folder: Path) -> Start:
    """Start a proxy on the socket in `folder`, whose upstream has NAME. It denies one network."""
    (folder / "denied").write_text(f"{DENIED}/32\n", "ascii")

    def started(**settings: Any) -> Proxy:
        upstream = start_upstream({NAME: "https://www.example.org/socket"})
        given = {"host": f"{UNIX}{folder}/socket", "client_deny_file": folder / "denied"}
        proxy = start_proxy(upstream.url, store_file, **given, **settings)
        asyncio.run(upstream.ready())
        asyncio.run(proxy.serves())
        return proxy

    return started


def target_of(proxy: Proxy, folder: Path) -> Target:
    """The proxy as its clients see it."""
    return Target(proxy.process, 0, folder / "log", Door.UNIX)  # type: ignore[arg-type]


def ask(target: Target, *lines: str) -> list[int]:
    """The status of the answer on a new connection."""
    with target.connect() as connection:
        send(connection, head(TARGET, "Connection: close", *lines))
        return statuses(read(connection, PATIENCE))


@pytest.mark.process
def test_a_socket_has_the_limit_of_all_connections_and_none_of_a_client(start: Start, folder: Path) -> None:
    proxy = start(**{"max_connections": CAP, PER_CLIENT: 1})
    target = target_of(proxy, folder)
    assert ask(target) == [302]
    with ExitStack() as stack:
        few = [stack.enter_context(target.connect()) for _ in range(CAP // 2)]
        assert ask(target) == [302]
        assert not any(map(is_ended, few))
        many = [stack.enter_context(target.connect()) for _ in range(200)]
        assert [ask(target) for _ in range(10)] == [[302]] * 10

        async def are_ended() -> bool:
            return sum(map(is_ended, many)) >= 200 - CAP

        asyncio.run(until(are_ended, START_DEADLINE, "connections beyond the limit are ended"))
        assert int(psutil.Process(proxy.process.id).num_fds()) < 100 + CAP
    # The peer is trusted: it says who the client is.
    assert ask(target, f"X-Forwarded-For: {DENIED}") == [403]
    assert ask(target, f"X-Forwarded-For: {DENIED}, 192.0.2.1") == [302]
    assert stat.S_IMODE((folder / "socket").stat().st_mode) == 0o660


@pytest.mark.process
@pytest.mark.parametrize("kind", ["nginx", "apache", "caddy"])
def test_a_generated_front_proxy_reaches_the_socket(kind: str, start: Start, folder: Path) -> None:
    program({"apache": "apache2"}.get(kind, kind))
    start()
    if os.geteuid() == 0:
        os.chown(folder / "socket", -1, 65_534)  # the group of Apache's worker processes in this test

    async def run() -> None:
        front = GeneratedFront(folder / "front", kind, [f"{UNIX}{folder}/socket"])
        try:
            await front.ready()
            answer = await front.ask_https(TARGET)
            assert (answer.status, answer.location) == (302, "https://www.example.org/socket")
            assert (await front.ask_https(TARGET, client=DENIED)).status == 403
        finally:
            front.process.kill()

    asyncio.run(run())


@pytest.mark.process
def test_an_abandoned_socket_is_replaced_and_one_in_use_is_not(start: Start, folder: Path) -> None:
    proxy = start()
    proxy.process.kill()
    proxy.restart()
    target = target_of(proxy, folder)

    async def answers() -> bool:
        assert proxy.process.runs, proxy.process.log
        return target.status(TARGET) == 302

    asyncio.run(until(answers, START_DEADLINE, "an answer through the socket"))
    address = f"{UNIX}{folder}/socket"
    with pytest.raises(AddressUnavailable, match="another program uses it"):
        listen(address, 0)
    for command, words in (("check --ready", '"ready":true'), ("check", f"a doi-proxy already answers on {address}")):
        arguments = [sys.executable, "-m", "doi_proxy", *command.split(), "--host", address, "--store-url", "memory:"]
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        assert words in ended.stdout + ended.stderr
    assert ask(target) == [302]


def test_what_is_not_a_socket_is_left_in_place(folder: Path) -> None:
    (folder / "file").write_text("kept", "ascii")
    with pytest.raises(ConfigurationError, match="it is a file, not a socket"):
        listen(f"{UNIX}{folder}/file", 0)
    assert (folder / "file").read_text("ascii") == "kept"
    with pytest.raises(AddressUnavailable, match="its folder does not exist"):
        listen(f"{UNIX}{folder}/none/socket", 0)
    release(listen(f"{UNIX}{folder}/socket", 0))
    assert not (folder / "socket").exists()


@pytest.mark.parametrize(
    "settings",
    [{"host": "unix:http.sock"}, {"host": "unix:/" + "x" * 107}, {"host": "unix:/run/s", "tls_cert": "a.pem"}],
)
def test_a_socket_needs_a_short_absolute_path_and_no_certificate(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="socket"):
        Settings(**settings)
