"""The HTTP listener with `proxy_protocol`: the client of a connection is the one that the front proxy names."""

from __future__ import annotations

import asyncio
import os
import pwd
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from doi_proxy.assembly.settings import Settings
from doi_proxy.proxy_client import find_server
from doi_proxy.server.connections import HEAD_TIMEOUT, Reason
from doi_proxy.server.http_server import ProxyProtocolLayer
from doi_proxy.server.protocol import ServerProtocol
from doi_proxy.server.proxy_header import OWN_CONNECTION
from doi_proxy.server.tls import Certificate, TlsLayer
from tests.certificates import self_signed
from tests.clock import Clock
from tests.cluster.conftest import StartProxy, StartUpstream
from tests.cluster.front_proxy import program
from tests.cluster.processes import START_DEADLINE, Process, until
from tests.cluster.raw_http import ask
from tests.constants import PER_CLIENT
from tests.ports import free_port
from tests.server.served import NAME, TARGET, Served, finish, statuses
from tests.server.test_proxy_header import IPV4, IPV6, MALFORMED, TLV, binary
from tests.server.ways import Server
from tests.table import table

pytestmark = pytest.mark.anyio

FRONT: Final = "192.0.2.80"
GET: Final = f"GET /{NAME} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
LAST: Final = f"GET /{NAME} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
#: Of nginx, in Debian's package libnginx-mod-stream.
STREAM_MODULE: Final = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
DENIED: Final = "127.0.3.1"


def service(**settings: Any) -> Served:
    """A service with one front proxy, and a client rate of two requests."""
    return Served(
        **{"proxy_protocol": True, "trusted_proxies": FRONT, "client_rate": 0.001, "client_burst": 2, **settings}
    )


def named(client: str) -> bytes:
    """A header of version 1."""
    return f"PROXY TCP4 {client} 192.0.2.1 56324 443\r\n".encode()


async def ask_as(server: Served, header: bytes, peer: str = FRONT) -> list[int]:
    """The statuses of the answers to one request after a header."""
    server.upstream.put(NAME, url=TARGET)
    return statuses(await server.exchange(header + LAST, client=peer))


@pytest.mark.parametrize(
    "header",
    [named("198.51.100.7"), binary(0x21, 0x11, IPV4 + TLV), binary(0x21, 0x21, IPV6)],
    ids=["version 1", "version 2", "IPv6"],
)
async def test_a_request_is_one_of_the_client_that_the_header_names(header: bytes) -> None:
    async with service() as server:
        assert [await ask_as(server, header) for _ in range(3)] == [[302], [302], [429]]
        assert await ask_as(server, named("203.0.113.9")) == [302]


async def test_both_versions_name_the_same_client() -> None:
    async with service() as server:
        headers = [named("198.51.100.7"), binary(0x21, 0x11, IPV4), named("198.51.100.7")]
        assert [await ask_as(server, header) for header in headers] == [[302], [302], [429]]


async def test_a_client_that_is_not_a_front_proxy_itself_cannot_name_another_by_a_header_of_http() -> None:
    async with service() as server:
        server.upstream.put(NAME, url=TARGET)
        found = []
        for number in range(3):
            request = LAST.replace(b"\r\n", b"\r\nX-Forwarded-For: 203.0.113.%d\r\n" % number, 1)
            found += statuses(await server.exchange(named("198.51.100.7") + request, client=FRONT))
        assert found == [302, 302, 429]


@pytest.mark.parametrize("header", [OWN_CONNECTION, binary(0x20, 0x00)], ids=["UNKNOWN", "LOCAL"])
async def test_without_a_client_in_the_header_the_peer_is_the_client(header: bytes) -> None:
    async with service() as server:
        # Any peer may say that it connects for itself: the service's own health checks do.
        assert [await ask_as(server, header, "198.51.100.7") for _ in range(3)] == [[302], [302], [429]]
        assert await ask_as(server, named("198.51.100.7")) == [429]


async def test_a_peer_that_is_not_a_trusted_proxy_may_name_no_client() -> None:
    async with service() as server:
        assert await ask_as(server, named("203.0.113.9"), "198.51.100.7") == []
        assert server.connections.closed[Reason.PROXY_HEADER] == 1
        server.reload(trusted_proxies="198.51.100.7")
        assert await ask_as(server, named("203.0.113.9"), "198.51.100.7") == [302]
        assert await ask_as(server, named("203.0.113.9")) == []


@table("data", MALFORMED)
async def test_a_connection_without_a_valid_header_is_closed_without_an_answer(data: bytes) -> None:
    async with service() as server:
        assert await server.exchange(data + GET, client=FRONT) == b""
        assert server.connections.closed[Reason.PROXY_HEADER] == 1
        assert len(server.connections) == 0


async def test_connections_without_a_valid_header_are_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with service() as server:
        for _ in range(50):
            assert await server.exchange(GET, client=FRONT) == b""
        await asyncio.sleep(2)
    assert len([record for record in caplog.records if "header of the PROXY protocol" in record.getMessage()]) == 1


@pytest.mark.parametrize("header", [named("198.51.100.7"), binary(0x21, 0x21, IPV6 + TLV)])
async def test_a_header_may_arrive_byte_by_byte_and_with_the_first_requests(header: bytes) -> None:
    async with service() as server:
        server.upstream.put(NAME, url=TARGET)
        pieces = [bytes([byte]) for byte in header + GET + GET + LAST]
        assert statuses(await server.exchange(*pieces, client=FRONT)) == [302, 302, 429]
        assert statuses(await server.exchange(header + GET + LAST, client=FRONT)) == [429, 429]


@pytest.mark.parametrize("data", [b"", b"PROXY", binary(0x21, 0x11, IPV4)[:-1]], ids=["nothing", "1", "2"])
async def test_a_header_has_the_deadline_of_the_head_of_a_request(data: bytes) -> None:
    async with service() as server:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await server.exchange(data, client=FRONT) == b""
        assert HEAD_TIMEOUT < loop.time() - began < HEAD_TIMEOUT + 3
        assert server.connections.closed[Reason.HEAD_TIMEOUT] == 1
        assert len(server.connections) == 0


async def test_a_front_proxy_that_leaves_before_the_end_of_its_header_is_forgotten() -> None:
    async with service() as server:
        assert await server.exchange(b"PROXY TCP4 ", end=True, client=FRONT) == b""
        await server.closed(Reason.CLIENT)
        assert len(server.connections) == 0


async def test_connections_count_as_those_of_the_clients_behind_the_front_proxy() -> None:
    async with service(client_rate=0, **{PER_CLIENT: 2}) as server:
        server.upstream.put(NAME, url=TARGET)
        waiting = [await server.connect(client=FRONT) for _ in range(4)]
        for number, (_, writer) in enumerate(waiting):
            # The front proxy has no limit. One client has.
            writer.write(named("198.51.100.7") if number else named("203.0.113.9"))
        await asyncio.sleep(1)
        assert server.connections.closed[Reason.CAP] == 1
        assert len(server.connections) == 3
        reader, writer = waiting[0]
        writer.write(LAST)
        assert statuses(await finish(reader, writer)) == [302]


async def test_at_the_most_connections_a_silent_one_gives_way_before_its_header() -> None:
    async with service(max_connections=4) as server:
        silent = [await server.connect(client=FRONT) for _ in range(4)]
        await asyncio.sleep(3)
        assert await ask_as(server, named("198.51.100.7")) == [302]
        assert server.connections.closed[Reason.CAP] == 1
        for _, writer in silent:
            writer.close()


async def test_a_shutdown_does_not_wait_for_a_header() -> None:
    async with service() as server:
        reader, writer = await server.connect(client=FRONT)
        writer.write(b"PROXY")
        await asyncio.sleep(1)
        await server.drain()
        assert await finish(reader, writer) == b""


async def test_without_the_setting_a_header_is_a_malformed_request() -> None:
    async with service(proxy_protocol=False) as server:
        assert statuses(await server.exchange(named("198.51.100.7") + GET, client=FRONT)) == [400]


async def _ask_over_tls(folder: Path, *, is_split: bool) -> bytes:
    """The answer to a request over TLS after a header, which arrives with the first bytes of TLS or before them."""
    chain, key = self_signed(folder)
    server = Server(Clock(), ServerProtocol, trusted_proxies="127.0.0.1")
    options = {"config": server._config, "server_state": server.state, "app_state": {}}
    certificate = Certificate(chain, key)

    def create_layer() -> ProxyProtocolLayer:
        def create(**more: Any) -> TlsLayer:
            return TlsLayer(certificate, **more)

        connections: Any = server.application.connections
        return ProxyProtocolLayer(create, connections, **options)

    loop = asyncio.get_running_loop()
    listening = await loop.create_server(create_layer, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context(cafile=chain).wrap_bio(arriving, leaving, server_hostname="127.0.0.1")
    header = named("198.51.100.7")
    if is_split:
        for byte in header:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.001)
        header = b""
    answer, has_sent = b"", False
    while b"\r\n\r\n" not in answer:
        try:
            if not has_sent:
                tls.do_handshake()
                has_sent = bool(tls.write(GET))
            answer += tls.read()
        except ssl.SSLWantReadError:
            if sent := leaving.read():
                writer.write(header + sent)
                header = b""
            received = await reader.read(65_536)
            assert received, "the connection ended"
            arriving.write(received)
    open_connections: Any = server.state.connections
    clients = [connection.client for connection in open_connections]
    writer.close()
    listening.close()
    await server.close()
    assert clients == [("198.51.100.7", 56_324)]
    return answer


@pytest.mark.parametrize("is_split", [False, True])
def test_tls_begins_after_the_header(is_split: bool, tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        answer = runner.run(_ask_over_tls(tmp_path, is_split=is_split))
    assert statuses(answer) == [302]


def test_a_command_on_this_machine_sends_a_header_and_one_for_another_url_does_not() -> None:
    settings = Settings(proxy_protocol=True)
    assert find_server(settings, None).has_proxy_protocol
    assert not find_server(settings, "http://127.0.0.1:8000").has_proxy_protocol
    assert not find_server(Settings(), None).has_proxy_protocol


@pytest.mark.process
@pytest.mark.parametrize("has_tls", [False, True], ids=["http", "https"])
async def test_nginx_passes_tcp_on_and_names_the_client(
    has_tls: bool, start_upstream: StartUpstream, start_proxy: StartProxy, store_file: str, tmp_path: Path
) -> None:
    if not STREAM_MODULE.exists():
        pytest.skip("nginx has no stream module: install Debian's package libnginx-mod-stream")
    nginx = program("nginx")
    upstream = start_upstream({NAME: TARGET})
    (tmp_path / "denied").write_text(f"{DENIED}/32\n", "ascii")
    certificate, key = self_signed(tmp_path)
    settings: dict[str, Any] = {"proxy_protocol": True, "client_deny_file": tmp_path / "denied"}
    if has_tls:
        settings |= {"tls_cert": certificate, "tls_key": key}
    proxy = start_proxy(upstream.url, store_file, **settings)
    await asyncio.gather(upstream.ready(), proxy.serves())
    port = free_port()
    user = "" if os.geteuid() else f"user {pwd.getpwuid(0).pw_name};\n"
    (tmp_path / "nginx.conf").write_text(
        f"load_module {STREAM_MODULE};\n{user}pid {tmp_path}/nginx.pid;\nerror_log {tmp_path}/error.log;\n"
        f"events {{ worker_connections 64; }}\nstream {{ server {{ listen 127.0.0.1:{port};\n"
        f"proxy_pass 127.0.0.1:{proxy.port};\nproxy_protocol on; }} }}\n"
    )
    front = Process([nginx, "-p", str(tmp_path), "-c", "nginx.conf", "-g", "daemon off;"], tmp_path / "front.log")
    tls = ssl.create_default_context(cafile=certificate) if has_tls else None

    async def answers() -> bool:
        assert front.runs, front.log
        try:
            return (await ask(port, "/healthz", tls=tls)).status == 200
        except (OSError, EOFError):
            return False

    try:
        await until(answers, START_DEADLINE, "an answer through nginx")
        found = [(await ask(port, f"/{NAME}", tls=tls, client=client)).status for client in (DENIED, "127.0.3.2")]
        assert found == [403, 302]
        words = f"check --ready --port {proxy.port} --proxy-protocol true --store-url memory:"
        arguments = words.split()
        arguments += ["--tls-cert", str(certificate), "--tls-key", str(key)] if has_tls else []
        command = [sys.executable, "-m", "doi_proxy", *arguments]
        ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert '"ready":true' in ended.stdout, ended.stderr
        with pytest.raises((OSError, EOFError)):
            await ask(proxy.port, "/healthz", tls=tls)
    finally:
        front.kill()
