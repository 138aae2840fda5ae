"""Requests to a server that answers as a test says: what is read, how much, and until when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.proxy_client import Exchange, ProxyFailure, ProxyServer, parse_server
from tests.accepting import accept_into, close_server

# The client is synchronous: it runs in a thread, over a socket of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

OK: Final = b"HTTP/1.1 200 OK\r\n"


class Stand:
    """A server on loopback, or on a Unix socket. It keeps the heads of requests."""

    def __init__(self, answers: tuple[bytes, ...], *, ends: bool) -> None:
        self.answers = list(answers)
        self.ends = ends
        self.heads: list[str] = []
        self.asked = asyncio.Event()
        self.server = ProxyServer("", "")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while self.answers:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self.answers.pop(0))
            self.asked.set()
        if not self.ends:
            await reader.read()
        writer.close()


@asynccontextmanager
async def standing(
    *answers: bytes, ends: bool = True, socket: Path | None = None, user: str = ""
) -> AsyncIterator[Stand]:
    stand = Stand(answers, ends=ends)
    tasks, writers = set[asyncio.Task[None]](), list[asyncio.StreamWriter]()
    serve = accept_into(tasks, writers, stand.serve)
    if socket is not None:
        server: asyncio.Server = await asyncio.start_unix_server(serve, socket)
        url = f"unix:{socket}"
    else:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://{user}127.0.0.1:{server.sockets[0].getsockname()[1]}/base/"
    stand.server = parse_server(url, "--server")
    try:
        yield stand
    finally:
        await close_server(server, tasks, writers)


def get(server: ProxyServer, most: int = 1_000, *, deadline: float = 30.0) -> tuple[int, bytes]:
    with Exchange(server, 30.0, deadline=deadline) as exchange:
        return exchange.send("GET", "/x", {}), exchange.read(most)


async def test_only_the_fields_of_the_caller_are_sent() -> None:
    async with standing(OK + b"\r\n") as stand:
        await asyncio.to_thread(get, stand.server)
    assert stand.heads == [f"GET /base/x HTTP/1.1\r\nHost: {stand.server.netloc}\r\n\r\n"]


async def test_the_user_of_the_url_is_sent() -> None:
    async with standing(OK + b"\r\n", user="u:p@") as stand:
        await asyncio.to_thread(get, stand.server)
    assert "Authorization: Basic dTpw\r\n" in stand.heads[0]


async def test_a_unix_socket_is_answered(tmp_path: Path) -> None:
    async with standing(OK + b"\r\nx", socket=tmp_path / "s") as stand:
        assert await asyncio.to_thread(get, stand.server) == (200, b"x")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (OK + b"\r\n" + b"x" * 1_001, "the answer is larger than 1000 bytes"),
        (OK + b"Content-Length: 9\r\n\r\nx", "the answer ended early"),
        (b"SSH-2.0\r\n", "no answer"),
        (b"", "no answer"),
    ],
)
async def test_an_answer_that_is_not_right_or_too_large_is_a_failure(answer: bytes, message: str) -> None:
    async with standing(answer) as stand:
        with pytest.raises(ProxyFailure, match=message) as caught:
            await asyncio.to_thread(get, stand.server)
    assert caught.value.message.startswith(stand.server.label)


async def test_lines_are_read_as_they_arrive_and_have_a_limit() -> None:
    async with standing(OK + b"\r\na\n\nb\n" + b"c" * 100) as stand:
        with Exchange(stand.server, 30.0) as exchange:
            await asyncio.to_thread(exchange.send, "GET", "/x", {})
            assert await asyncio.to_thread(exchange.read_lines, 100) == [b"a", b"b"]
            assert await asyncio.to_thread(exchange.read_lines, 100) == []
    async with standing(OK + b"\r\n" + b"c" * 101) as stand:
        with Exchange(stand.server, 30.0) as exchange:
            await asyncio.to_thread(exchange.send, "GET", "/x", {})
            with pytest.raises(ProxyFailure, match="a line of the answer has more than 100 bytes"):
                await asyncio.to_thread(exchange.read_lines, 100)


@pytest.mark.parametrize("answer", [b"", OK, OK + b"X: y", OK + b"\r\nx", OK + b"Connection: close\r\n\r\nx"])
async def test_an_answer_that_does_not_end_is_left_at_the_deadline(answer: bytes) -> None:
    async with standing(answer, ends=False) as stand:
        with pytest.raises(ProxyFailure, match=r"the answer took longer than 0\.1 s"):
            await asyncio.to_thread(get, stand.server, deadline=0.1)


@pytest.mark.parametrize("answer", [b"", OK, OK + b"X: y", OK + b"\r\nx", OK + b"Connection: close\r\n\r\nx"])
async def test_another_thread_can_end_an_exchange(answer: bytes) -> None:
    async with standing(answer, ends=False) as stand:
        exchange = Exchange(stand.server, 30.0)

        def run() -> bytes:
            exchange.send("GET", "/x", {})
            return exchange.read(1_000)

        task = asyncio.create_task(asyncio.to_thread(run))
        await stand.asked.wait()
        exchange.close()
        with pytest.raises(ProxyFailure, match="no answer"):
            await task


@pytest.mark.parametrize(
    ("head", "hints", "message", "is_transient", "retry_after"),
    [
        (b"429 X\r\nRetry-After: 7\r\n\r\n" + b'{"detail": "over its limit"}', {}, "over its limit", True, 7.0),
        (b'503 X\r\n\r\n{"detail": "' + b"x" * 600 + b'"}', {}, "x" * 500, True, None),
        (
            b"403 X\r\n\r\n<html>",
            {},
            "status 403; this is not a doi-proxy, or an older one; check the URL",
            False,
            None,
        ),
        (b"431 X\r\n\r\nToo large.", {}, "the request is too long for it; shorten the arguments", False, None),
        (b"500 X\r\n\r\n" + b"[" * 100_000, {}, "status 500; this is not a doi-proxy", True, None),
        (b'401 X\r\n\r\n{"detail": "x"}', {401: "the token is wrong"}, "the token is wrong", False, None),
        (b"302 X\r\nLocation: http://u:p@y/\r\n\r\n", {}, "redirects to 'http://***@y/'", False, None),
    ],
)
async def test_a_refusal_is_a_sentence(
    head: bytes, hints: dict[int, str], message: str, is_transient: bool, retry_after: float | None
) -> None:
    async with standing(b"HTTP/1.1 " + head) as stand:
        with Exchange(stand.server, 30.0) as exchange:
            await asyncio.to_thread(exchange.send, "GET", "/x", {})
            failure = await asyncio.to_thread(exchange.refusal, hints)
    assert failure.message.startswith(f"{stand.server.label}: {message}")
    assert (failure.is_transient, failure.retry_after) == (is_transient, retry_after)
    assert len(failure.message) < 700
