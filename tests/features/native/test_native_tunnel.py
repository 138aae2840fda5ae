"""The HTTP tunnel: its answers, its egress proxies, and the certificate of an HTTPS interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from hypothesis import given
from hypothesis import strategies as st

from handle_protocol.errors import HandleProtocolError, ServerRefused, ServerTimeout, ServerUnreachable, UnusableAnswer
from handle_protocol.key import compare_certificate
from handle_protocol.referral import HandleService, Question
from handle_protocol.site import Candidate, Endpoint
from handle_protocol.wire.message import Filters, Query, ResponseStatus, encode_query
from tests.features.native.clients import HTTP, HTTPS, MAX_BYTES, Exchanges, Tokens, open_exchange, open_transports
from tests.handle_protocol.certificates import new_key, serve_tls
from tests.handle_protocol.keys import dsa_key
from tests.handle_protocol.recorded import needs_recordings, rows
from tests.handle_protocol.server import HandleServer
from tests.table import table

pytestmark = pytest.mark.anyio

NAME: Final = b"10.1000/182"
_MESSAGE: Final = b"Content-Type: application/x-hdl-message\r\n"
_REQUEST: Final = encode_query(Query(Filters(NAME), request_id=7, expiration=0))


@pytest.fixture(autouse=True)
def _without_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Egress proxies of the environment count for this machine too."""
    monkeypatch.delenv("no_proxy", raising=False)


@pytest.fixture(scope="module")
def key() -> RSAPrivateKey:
    return new_key()


async def ask(server: HandleServer, *, observer: Exchanges | None = None, both: bool = False) -> int:
    """The response code of an answer that came through HTTPS, or with `both`, through either scheme."""
    exchange = open_exchange((HTTPS, HTTP) if both else (HTTPS,), observer=observer)
    try:
        return (await exchange(HandleService((server.site(),), is_verified=False), Question(NAME))).code
    finally:
        await exchange.aclose()


async def test_the_dates_of_a_certificate_do_not_matter(tmp_path: Path, key: RSAPrivateKey) -> None:
    async with HandleServer(key=key, tls=serve_tls(tmp_path, key, is_expired=True)) as server:
        assert await ask(server) == ResponseStatus.HANDLE_NOT_FOUND


async def test_a_certificate_with_another_key_gets_no_query(tmp_path: Path, key: RSAPrivateKey) -> None:
    async with HandleServer(key=key, tls=serve_tls(tmp_path, new_key())) as server:
        with pytest.raises(ServerUnreachable, match="another key than its site value"):
            await ask(server)
        assert server.queries() == 0


async def test_the_next_interface_is_queried_if_the_certificate_has_another_key(
    tmp_path: Path, key: RSAPrivateKey
) -> None:
    seen = Exchanges()
    async with HandleServer(key=key, tls=serve_tls(tmp_path, new_key()), transports=frozenset({"http"})) as server:
        assert await ask(server, observer=seen, both=True) == ResponseStatus.HANDLE_NOT_FOUND
        assert seen.seen == [("https", False), ("http", True)]


async def test_a_certificate_proves_nothing_about_a_server_with_a_dsa_key(tmp_path: Path, key: RSAPrivateKey) -> None:
    async with HandleServer(key=dsa_key(), tls=serve_tls(tmp_path, key)) as server:
        assert await ask(server) == ResponseStatus.HANDLE_NOT_FOUND


async def test_a_kept_connection_serves_the_key_alone_that_it_was_compared_with(
    tmp_path: Path, key: RSAPrivateKey
) -> None:
    transport = open_transports((HTTPS,))[HTTPS]
    async with HandleServer(key=key, tls=serve_tls(tmp_path, key)) as server:
        own = server.site().servers[0]
        endpoint = Endpoint(own.ip, HTTPS, server.tls_port)
        await transport.exchange(Candidate(endpoint, own.public_key, 1, None), NAME, _REQUEST)
        other = HandleServer(key=new_key()).site().servers[0].public_key
        with pytest.raises(ServerUnreachable):
            await transport.exchange(Candidate(endpoint, other, 1, None), NAME, _REQUEST)
        await transport.aclose()


@needs_recordings
@pytest.mark.parametrize("row", ["n0406", "n0407"])
def test_the_recorded_certificates_are_judged_as_noted(row: str) -> None:
    by_id = {item["id"]: item for item in rows()}
    # The keys of the servers A (RSA) and B (DSA).
    servers = by_id["n0284"]["decoded"]["response"]["site"]["servers"]
    rsa, dsa = (bytes.fromhex(servers[number]["public_key_hex"]) for number in (0, 1))
    certificate = bytes.fromhex(by_id[row]["decoded"]["certificate_hex"])
    compare_certificate(certificate, dsa)
    if by_id[row]["decoded"]["certificate_key_equals_site_key"]:
        compare_certificate(certificate, rsa)
    else:
        with pytest.raises(ServerUnreachable):
            compare_certificate(certificate, rsa)


@pytest.mark.parametrize("certificate", [b"", b"\x30\x00", bytes(1_000)])
def test_bytes_that_are_not_a_certificate_fail(certificate: bytes) -> None:
    with pytest.raises(ServerUnreachable):
        compare_certificate(certificate, HandleServer().site().servers[0].public_key)


# Answers of HTTP servers that are not handle servers, or speak HTTP in another way


async def close(server: asyncio.Server, tasks: set[asyncio.Task[None] | None]) -> None:
    """Close a server, and wait for its connections, which the client has closed."""
    server.close()
    async with asyncio.timeout(10.0):
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)
        await server.wait_closed()


@asynccontextmanager
async def http_server(*answers: bytes, connections: list[bytes] | None = None) -> AsyncIterator[int]:
    """A server that sends one of `answers` after each request, then closes. The requests go to `connections`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        try:
            for answer in answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or b"0")
                body = await reader.readexactly(length)
                if connections is not None:
                    connections.append(head + body)
                writer.write(answer)
                await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    tasks: set[asyncio.Task[None] | None] = set()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await close(server, tasks)


async def post(port: int, *, times: int = 1, host: bytes | None = None, tokens: Tokens | None = None) -> bytes:
    """The last message of some that were sent through HTTP."""
    transport = open_transports((HTTP,), tokens=tokens)[HTTP]
    server = HandleServer(port).site().servers[0]
    try:
        for _ in range(times):
            got = await transport.exchange(Candidate(Endpoint(server.ip, HTTP, port), b"", 1, host), NAME, _REQUEST)
    finally:
        await transport.aclose()
    return got


def ok(body: bytes, *fields: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + _MESSAGE + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


_CHUNKED: Final = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (5, _REQUEST[:5], len(_REQUEST) - 5, _REQUEST[5:])
_LENGTH: Final = b"Content-Length: %d" % len(_REQUEST)


@pytest.mark.parametrize(
    "answer",
    [
        ok(_REQUEST, _LENGTH),
        ok(_CHUNKED, b"Transfer-Encoding: chunked"),
        ok(_REQUEST),
        ok(_REQUEST, b"Connection: close"),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + ok(_REQUEST, _LENGTH),
        ok(_REQUEST, _LENGTH).replace(b"hdl-message", b"hdl-message; charset=binary"),
        b"HTTP/1.0 200 OK\r\n" + _MESSAGE + b"\r\n" + _REQUEST,
    ],
    ids=["length", "chunks", "end", "close", "interim", "parameter", "http-1.0"],
)
async def test_each_framing_of_http_carries_a_message(answer: bytes) -> None:
    async with http_server(answer) as port:
        assert await post(port) == _REQUEST


@table(
    ("answer", "failure"),
    [
        (b"HTTP/1.1 503 No\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", ServerRefused),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nno", UnusableAnswer),
        (ok(_REQUEST, _LENGTH, b"Content-Encoding: gzip"), UnusableAnswer),
        (ok(_REQUEST, _LENGTH).replace(b"hdl-message", b"hdl-other"), UnusableAnswer),
        (ok(b"", b"Content-Length: 0"), UnusableAnswer),
        (ok(b"x" * (MAX_BYTES + 100), b"Content-Length: %d" % (MAX_BYTES + 100)), UnusableAnswer),
        (b"HTTP/1.1 200 OK\r\n" + b"X-Field: y\r\n" * 10_000, ServerUnreachable),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", ServerUnreachable),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000, UnusableAnswer),
        (ok(b"1\r\nx\r\n" * 20_000, b"Transfer-Encoding: chunked"), UnusableAnswer),
        (ok(_REQUEST, b"Content-Length: 9", b"Transfer-Encoding: chunked"), ServerUnreachable),
        (b"SSH-2.0-OpenSSH_9.6\r\n", ServerUnreachable),
        (b"", ServerUnreachable),
    ],
)
async def test_what_is_not_a_message_is_a_failure(answer: bytes, failure: type[HandleProtocolError]) -> None:
    async with http_server(answer) as port:
        with pytest.raises(failure):
            await post(port)


async def test_a_refusal_says_how_long_to_wait() -> None:
    async with http_server(b"HTTP/1.1 503 No\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n") as port:
        with pytest.raises(ServerRefused) as caught:
            await post(port)
        assert (caught.value.http_status, caught.value.retry_after) == (503, "7")


async def test_a_second_answer_after_the_first_is_not_the_answer_of_the_next_query() -> None:
    async with http_server(ok(_REQUEST, _LENGTH) + ok(b"lie", b"Content-Length: 3")) as port:
        assert await post(port) == _REQUEST
        assert await post(port, times=2) == _REQUEST


async def test_a_connection_is_not_used_again_after_the_answer_to_another_message() -> None:
    other = encode_query(Query(Filters(NAME), request_id=8, expiration=0))
    async with http_server(ok(other, _LENGTH), ok(_REQUEST, _LENGTH)) as port:
        # Each connection begins with the wrong answer.
        assert await post(port, times=2) == other


async def test_the_host_of_a_site_is_sent_and_cannot_add_a_field() -> None:
    seen: list[bytes] = []
    async with http_server(ok(_REQUEST, _LENGTH), connections=seen) as port:
        await post(port, host=b"handles.example.org")
        await post(port, host=b"x\r\nX-Evil: 1")
        assert b"\r\nHost: handles.example.org\r\n" in seen[0]
        assert b"Evil" not in seen[1]
        assert f"\r\nHost: 127.0.0.1:{port}\r\n".encode() in seen[1]
        assert seen[0].startswith(b"POST /10.1000%2F182 HTTP/1.1\r\n")


_PIECES: Final = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"Content-Length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: upgrade\r\nUpgrade: x\r\n",
            b"\r\n",
            b"3\r\nabc\r\n",
            b"0\r\n\r\n",
            b"abc",
        ]
    ),
)


@given(st.lists(_PIECES, max_size=12))
async def test_any_bytes_are_an_answer_or_a_failure_of_ours(pieces: list[bytes]) -> None:
    async with http_server(b"".join(pieces)) as port:
        with suppress(HandleProtocolError):
            await post(port)


# A connection that the server closed while it was idle


async def test_a_query_on_a_closed_idle_connection_is_sent_again_for_a_token() -> None:
    seen: list[bytes] = []
    tokens = Tokens(1)
    # The second request on a connection is read, and the connection is closed without an answer.
    async with http_server(ok(_REQUEST, _LENGTH), b"", connections=seen) as port:
        assert await post(port, times=2, tokens=tokens) == _REQUEST
        assert (len(seen), tokens.left) == (3, 0)


async def test_a_query_on_a_closed_idle_connection_fails_without_a_token() -> None:
    seen: list[bytes] = []
    async with http_server(ok(_REQUEST, _LENGTH), b"", connections=seen) as port:
        with pytest.raises(ServerUnreachable):
            await post(port, times=2, tokens=Tokens(0))
        assert len(seen) == 2


async def test_an_answer_that_was_begun_on_an_idle_connection_is_not_requested_again() -> None:
    seen: list[bytes] = []
    tokens = Tokens(5)
    async with http_server(ok(_REQUEST, _LENGTH), b"HTTP/1.1 200 OK\r\n", connections=seen) as port:
        with pytest.raises(ServerUnreachable):
            await post(port, times=2, tokens=tokens)
        assert (len(seen), tokens.left) == (2, 5)


# Egress proxies


@asynccontextmanager
async def egress_proxy(
    target: int, *, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A proxy that leads every CONNECT and every request to a port of this machine."""
    heads: list[bytes] = []

    tasks: set[asyncio.Task[None] | None] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        head = await reader.readuntil(b"\r\n\r\n")
        heads.append(head)
        there, back = await asyncio.open_connection("127.0.0.1", target)
        if head.startswith(b"CONNECT "):
            writer.write(answer)
        else:
            back.write(head)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heads
    finally:
        await close(server, tasks)


async def test_http_goes_through_an_egress_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_server(ok(_REQUEST, _LENGTH)) as port, egress_proxy(port) as (proxy, heads):
        monkeypatch.setenv("http_proxy", f"http://user:p%40ss@127.0.0.1:{proxy}")
        assert await post(port) == _REQUEST
        assert heads[0].startswith(b"POST http://127.0.0.1:%d/10.1000%%2F182 HTTP/1.1\r\n" % port)
        assert b"\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n" in heads[0]


async def test_an_egress_proxy_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(ServerUnreachable) as raised:
        await post(80)
    assert raised.value.detail.startswith("the egress proxy 127.0.0.1:9 cannot be reached: ")


async def test_tls_goes_through_an_egress_proxy_and_its_certificate_is_compared(
    tmp_path: Path, key: RSAPrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with HandleServer(key=key, tls=serve_tls(tmp_path, key)) as server:
        async with egress_proxy(server.tls_port) as (proxy, heads):
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy}")
            assert await ask(server) == ResponseStatus.HANDLE_NOT_FOUND
            assert heads[0].startswith(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n" % server.tls_port)
        async with (
            HandleServer(key=key, tls=serve_tls(tmp_path, new_key())) as impostor,
            egress_proxy(impostor.tls_port) as (proxy, _),
        ):
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy}")
            with pytest.raises(ServerUnreachable, match="another key"):
                await ask(server)
            assert impostor.queries() == 0


async def test_an_egress_proxy_gets_the_host_of_the_server_and_not_that_of_its_site(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with http_server(ok(_REQUEST, _LENGTH)) as port, egress_proxy(port) as (proxy, heads):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy}")
        await post(port, host=b"internal.example:80")
        assert f"\r\nHost: 127.0.0.1:{port}\r\n".encode() in heads[0]
        assert b"internal" not in heads[0]


@pytest.mark.parametrize(
    "success",
    [
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_the_framing_of_an_answer_to_connect_does_not_count(
    tmp_path: Path, key: RSAPrivateKey, monkeypatch: pytest.MonkeyPatch, success: bytes
) -> None:
    async with (
        HandleServer(key=key, tls=serve_tls(tmp_path, key)) as server,
        egress_proxy(server.tls_port, answer=success) as (proxy, _),
    ):
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy}")
        assert await ask(server) == ResponseStatus.HANDLE_NOT_FOUND


async def test_an_egress_proxy_that_refuses_is_a_failure(
    tmp_path: Path, key: RSAPrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        HandleServer(key=key, tls=serve_tls(tmp_path, key)) as server,
        egress_proxy(server.tls_port, answer=b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n") as (proxy, _),
    ):
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy}")
        with pytest.raises(ServerUnreachable) as caught:
            await ask(server)
        assert "407" in caught.value.detail


async def test_an_egress_proxy_behind_tls_does_not_carry_https(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "https://127.0.0.1:9")
    transport = open_transports((HTTPS,))[HTTPS]
    with pytest.raises(ServerUnreachable) as caught:
        await transport.exchange(
            Candidate(Endpoint(HandleServer().site().servers[0].ip, HTTPS, 1), b"", 1, None), NAME, _REQUEST
        )
    assert "https egress proxy" in caught.value.detail


async def test_an_egress_proxy_that_is_not_a_url_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "ftp://127.0.0.1")
    with pytest.raises(ServerUnreachable):
        await post(1)


async def test_a_tls_server_that_never_answers_the_handshake_costs_the_connect_timeout() -> None:
    # It waits for the end of a request's head.
    async with http_server(b"never") as port:
        transport = open_transports((HTTPS,), connect_timeout=5.0)[HTTPS]
        server = HandleServer(port).site().servers[0]
        with pytest.raises(ServerTimeout):
            await transport.exchange(Candidate(Endpoint(server.ip, HTTPS, port), b"", 1, None), NAME, _REQUEST)
        await transport.aclose()
