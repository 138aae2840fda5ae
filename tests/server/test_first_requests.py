"""Connections are counted, limited and timed from `accept`, before TLS. Uses processes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from bench.attacks.handshakes import PART_OF_HELLO
from tests.certificates import self_signed
from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.processes import START_DEADLINE, Proxy, until
from tests.constants import GRACE, HEAD_TIMEOUT, IDLE_TIMEOUT, PER_CLIENT
from tests.hostile.clients import connect, head, is_ended, read_to_end, send, statuses

pytestmark = pytest.mark.process

NAME: Final = "10.1234/first"
TARGET: Final = f"/{NAME}"
OTHER: Final = "127.0.2.1"
CAP: Final = 20
NETWORKS: Final = 10
UNFINISHED: Final = 200
PATIENCE: Final = 60.0
#: Seconds until a head is given up: more than a handshake takes on a busy machine.
HEAD_SECONDS: Final = 3
#: Descriptors of a process that belong to no connection, and may be opened after the first answer.
OTHERS: Final = 20


class TlsProxy:
    """A running proxy that serves HTTPS itself."""

    def __init__(self, proxy: Proxy, chain: Path) -> None:
        self.process, self.port = proxy.process, proxy.port
        self._context = ssl.create_default_context(cafile=chain)

    def connect(self, source: str = OTHER) -> ssl.SSLSocket:
        """A connection after its handshake."""
        return self._context.wrap_socket(connect(self.port, source=source), server_hostname="127.0.0.1")

    def ask(self, target: str = TARGET, *, source: str = OTHER) -> tuple[list[int], bytes]:
        """The status of the answer on a new connection, and what was read."""
        with self.connect(source) as connection:
            send(connection, head(target, "Connection: close"))
            received = read_to_end(connection, PATIENCE) or b""
        return statuses(received), received

    def session(self) -> ssl.SSLSession:
        """The session of a connection that has had an answer, and with it a ticket."""
        with self.connect() as connection:
            send(connection, head(TARGET, "Connection: close"))
            read_to_end(connection, PATIENCE)
            assert connection.session is not None
            return connection.session

    def resumes(self, session: ssl.SSLSession) -> bool:
        """Whether a new connection resumes a session (RFC 8446, section 2.2)."""
        plain = connect(self.port, source=OTHER)
        with self._context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as connection:
            return bool(connection.session_reused)

    def descriptors(self) -> int:
        """The number of its open descriptors."""
        return int(psutil.Process(self.process.id).num_fds())


@pytest.fixture
def start(start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str, tmp_path: Path) -> Any:
    """Start a proxy that serves HTTPS and has answered NAME."""

    def started(**settings: object) -> TlsProxy:
        upstream = start_upstream({NAME: "https://www.example.org/first"})
        chain, key = self_signed(tmp_path)
        proxy = start_proxy(upstream.url, store_file, tls_cert=chain, tls_key=key, **settings)
        asyncio.run(upstream.ready())
        asyncio.run(proxy.serves())
        served = TlsProxy(proxy, chain)
        assert served.ask()[0] == [302]
        return served

    return started


@pytest.mark.parametrize("sent", [b"", PART_OF_HELLO], ids=["silent", "partial"])
def test_unfinished_handshakes_take_the_places_of_max_connections_and_no_more(sent: bytes, start: Any) -> None:
    proxy = start(**{"max_connections": CAP, PER_CLIENT: CAP // 2})
    before = proxy.descriptors()
    with ExitStack() as stack:
        unfinished = [
            stack.enter_context(connect(proxy.port, source=f"127.0.{66 + number % NETWORKS}.1"))
            for number in range(UNFINISHED)
        ]
        for connection in unfinished:
            send(connection, sent)
        assert [proxy.ask()[0] for _ in range(10)] == [[302]] * 10
        assert proxy.descriptors() <= before + CAP + OTHERS

        async def are_ended() -> bool:
            return sum(map(is_ended, unfinished)) >= UNFINISHED - CAP

        asyncio.run(until(are_ended, START_DEADLINE, "connections beyond the limit are ended"))


def test_a_session_is_resumed(start: Any) -> None:
    proxy = start()
    session = proxy.session()
    assert [proxy.resumes(session) for _ in range(12)] == [True] * 12


def test_an_unfinished_handshake_has_the_deadline_of_a_head_and_a_failed_one_is_counted(start: Any) -> None:
    proxy = start(**{HEAD_TIMEOUT: HEAD_SECONDS, IDLE_TIMEOUT: 3600})
    with ExitStack() as stack:
        unfinished = [stack.enter_context(connect(proxy.port, source=OTHER)) for _ in range(10)]
        for number, connection in enumerate(unfinished):
            send(connection, PART_OF_HELLO[:number])
        assert [read_to_end(connection, PATIENCE) for connection in unfinished] == [b""] * 10
    with connect(proxy.port, source=OTHER) as connection:
        send(connection, head(TARGET))
        read_to_end(connection, PATIENCE)
    _, metrics = proxy.ask("/metrics")
    assert b'doi_proxy_connections_closed_total{reason="head_timeout"} 10.0' in metrics
    assert b'doi_proxy_connections_closed_total{reason="handshake"} 1.0' in metrics


def test_a_connection_after_its_handshake_has_the_deadline_of_a_head_too(start: Any) -> None:
    proxy = start(**{HEAD_TIMEOUT: HEAD_SECONDS})
    with proxy.connect() as silent, proxy.connect() as partial:
        send(partial, head(TARGET)[:-2])
        assert statuses(read_to_end(partial, PATIENCE) or b"") == [408]
        assert read_to_end(silent, PATIENCE) == b""


def test_answered_connections_over_tls_that_stay_open_take_no_more_places_either(start: Any) -> None:
    # The client never answers close_notify, so a connection that waited for it would keep its descriptor.
    proxy = start(**{"max_connections": CAP, PER_CLIENT: CAP // 2})
    before = proxy.descriptors()
    with ExitStack() as stack:
        for number in range(UNFINISHED // 2):
            connection = stack.enter_context(proxy.connect(f"127.0.{66 + number % NETWORKS}.1"))
            send(connection, head(TARGET))
            assert connection.recv(4096).startswith(b"HTTP/1.1 302")
        assert proxy.ask()[0] == [302]
        assert proxy.descriptors() <= before + CAP + OTHERS


def test_a_shutdown_does_not_wait_for_unfinished_handshakes(start: Any) -> None:
    proxy = start(**{GRACE: 3600})
    with connect(proxy.port, source=OTHER) as connection:
        send(connection, PART_OF_HELLO)
        proxy.ask()
        assert proxy.process.terminate() < PATIENCE
        assert read_to_end(connection, PATIENCE) == b""


def test_a_client_that_resets_its_handshake_leaves_its_place(start: Any) -> None:
    proxy = start()
    for _ in range(50):
        connection = connect(proxy.port, source=OTHER)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        send(connection, PART_OF_HELLO)
        connection.close()

    async def is_alone() -> bool:
        return b"doi_proxy_connections_open 1.0" in proxy.ask("/metrics")[1]

    asyncio.run(until(is_alone, START_DEADLINE, "every place is free"))
