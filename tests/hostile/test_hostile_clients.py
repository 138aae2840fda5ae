"""A process with real sockets ends every connection, whatever its client does, and has room for other clients.

The kernel has buffers and a number of files that no network in memory has. What is not of the kernel is in
tests/server/test_listener_contract.py and tests/server/test_requests.py."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.processes import START_DEADLINE, Proxy, until
from tests.constants import BODY_TIMEOUT, HEAD_TIMEOUT, IDLE_TIMEOUT, WRITE_TIMEOUT
from tests.hostile.clients import connect, flood, head, read_to_end, send
from tests.hostile.conftest import started

pytestmark = pytest.mark.process


_NAME: Final = "/10.1000/182"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory, upstream_url: str) -> Iterator[Proxy]:
    """A proxy whose deadlines for clients are one second."""
    one = started(
        tmp_path_factory.mktemp("impatient"),
        upstream_url,
        store_url="memory:",
        **dict.fromkeys((HEAD_TIMEOUT, BODY_TIMEOUT, WRITE_TIMEOUT, IDLE_TIMEOUT), 1),
    )
    try:
        yield one
    finally:
        one.process.kill()


def _resolves(proxy: Proxy) -> bool:
    return asyncio.run(proxy.ask(_NAME)).status == 302


@pytest.mark.parametrize(
    "unfinished",
    [head(_NAME)[:-2], head(_NAME, "Content-Length: 10", method="POST") + b"half", head(_NAME)],
    ids=["half a head", "half a body", "an idle connection"],
)
def test_what_is_never_finished_is_ended(impatient: Proxy, unfinished: bytes) -> None:
    with connect(impatient.port) as connection:
        send(connection, unfinished)
        assert read_to_end(connection) is not None


def test_a_client_that_reads_nothing_is_disconnected(impatient: Proxy) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(impatient.port)) for _ in range(5)]
        flood(connections, head("/") * 2_000, 10.0)

        async def answers() -> bool:
            # A client that stands still for a second is disconnected too.
            try:
                return (await impatient.ask(_NAME)).status == 302
            except (OSError, EOFError):
                return False

        asyncio.run(until(answers, START_DEADLINE, "another client is answered"))
        for connection in connections:
            connection.setblocking(True)
            assert read_to_end(connection) is not None


def test_more_connections_than_descriptors_leave_other_clients_alone(
    tmp_path_factory: pytest.TempPathFactory, upstream_url: str
) -> None:
    one = started(tmp_path_factory.mktemp("few"), upstream_url, max_connections=50)
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(150):
                with contextlib.suppress(OSError):
                    stack.enter_context(connect(one.port))
            assert all(_resolves(one) for _ in range(5))
    finally:
        one.process.kill()


def test_connections_that_come_and_go_leave_other_clients_alone(
    tmp_path_factory: pytest.TempPathFactory, upstream_url: str
) -> None:
    one = started(tmp_path_factory.mktemp("churn"), upstream_url, max_connections=50)
    try:
        answers = []
        for _ in range(10):
            with contextlib.ExitStack() as stack:
                for _ in range(60):
                    with contextlib.suppress(OSError):
                        stack.enter_context(connect(one.port))
                answers += [_resolves(one) for _ in range(10)]
        assert answers == [True] * 100
    finally:
        one.process.kill()


# --- The client of a request, on real sockets: only a trusted proxy may name an address other than its own -----------


FRONT_PROXY = "127.0.0.2"
STRANGER = "127.0.0.1"
DENIED = "198.51.100.9"
PERMITTED = "203.0.113.1"
_PATIENCE = 60.0


class Listed:
    """A proxy with lists of networks, and its answers to a client."""

    def __init__(self, folder: Path, upstream_url: str) -> None:
        self._lists = {"allow": folder / "allow.txt", "deny": folder / "deny.txt"}
        self.write("deny", f"{DENIED}/32\n127.0.0.3/32\n")
        self.write("allow", f"{PERMITTED}/32\n")
        self.proxy: Proxy = started(
            folder,
            upstream_url,
            trusted_proxies=FRONT_PROXY,
            client_deny_file=self._lists["deny"],
            client_allow_file=self._lists["allow"],
            client_rate=0.001,
            client_burst=5,
        )

    def write(self, name: str, lines: str) -> None:
        """Write a list."""
        self._lists[name].write_text(lines, encoding="utf-8")

    async def status(self, peer: str, forwarded: str) -> int:
        """The status of a request from a peer with this `X-Forwarded-For`."""
        headers = {"X-Forwarded-For": forwarded}
        return (await self.proxy.ask("/10.1000/182", client=peer, headers=headers)).status


@pytest.fixture
def listed(tmp_path: Path, upstream_url: str) -> Iterator[Listed]:
    one = Listed(tmp_path, upstream_url)
    try:
        yield one
    finally:
        one.proxy.process.kill()


def test_a_client_is_the_last_address_that_no_trusted_proxy_has(listed: Listed) -> None:
    requests = [
        (FRONT_PROXY, DENIED, 403),
        (FRONT_PROXY, f"{PERMITTED}, {DENIED}", 403),
        (FRONT_PROXY, f"{DENIED}, {FRONT_PROXY}", 403),
        # The client itself sent everything before the last address.
        (FRONT_PROXY, f"{DENIED}, {PERMITTED}", 302),
        # A host that is not a trusted proxy is the client, whatever it sends.
        (STRANGER, DENIED, 302),
        ("127.0.0.3", PERMITTED, 403),
    ]
    assert [(*sent, asyncio.run(listed.status(*sent))) for *sent, _ in requests] == requests


def test_the_lists_are_read_again_at_a_hangup(listed: Listed) -> None:
    other = "192.0.2.1"

    async def permits_what_was_denied() -> bool:
        return await listed.status(FRONT_PROXY, DENIED) == 302

    async def run() -> None:
        assert [await listed.status(FRONT_PROXY, other) for _ in range(6)] == [302] * 5 + [429]
        listed.write("deny", f"{PERMITTED}/32\n")
        listed.write("allow", f"{other}/32\n{DENIED}/32\n")
        listed.proxy.process.send(signal.SIGHUP)
        await until(permits_what_was_denied, _PATIENCE, listed.proxy.process.log)
        assert await listed.status(FRONT_PROXY, PERMITTED) == 403
        assert [await listed.status(FRONT_PROXY, other) for _ in range(6)] == [302] * 6

    asyncio.run(run())
