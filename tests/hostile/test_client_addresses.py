"""The client of a request, on real sockets: only a trusted proxy may name an address other than its own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import Proxy, until
from tests.hostile.conftest import started

pytestmark = pytest.mark.process

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
