"""The token of the admin API goes to a server that asks for it, and to no other one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import pytest

from doi_proxy.errors import DoiProxyError
from doi_proxy.proxy_client import AdminClient, ProxyServer, parse_server

pytestmark = pytest.mark.process

TOKEN: Final = "t" * 40
OURS: Final = {"WWW-Authenticate": 'Bearer realm="doi-proxy admin"'}


@contextmanager
def server(status: int, headers: dict[str, str], body: bytes = b"{}") -> Iterator[tuple[ProxyServer, list[str | None]]]:
    """Something that listens on a port and answers every request so, and the tokens that it got."""
    got: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - the name of the base class
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        yield parse_server(f"http://127.0.0.1:{listening.server_port}", "--server"), got
        listening.shutdown()


@pytest.mark.parametrize(
    ("status", "headers"),
    [(200, {}), (401, {"WWW-Authenticate": 'Basic realm="router"'}), (403, {"Content-Type": "text/html"}), (404, OURS)],
)
def test_a_stranger_on_the_port_does_not_get_the_token(status: int, headers: dict[str, str]) -> None:
    with server(status, headers) as (place, got):
        if status == 200:
            AdminClient(place, TOKEN).status()
        else:
            with pytest.raises(DoiProxyError):
                AdminClient(place, TOKEN).status()
        assert set(got) == {None}


@pytest.mark.parametrize(("status", "headers"), [(401, OURS), (403, {"Content-Type": "application/problem+json"})])
def test_a_server_that_asks_for_the_token_gets_it(status: int, headers: dict[str, str]) -> None:
    with server(status, headers) as (place, got):
        with pytest.raises(DoiProxyError):
            AdminClient(place, TOKEN).status()
        assert got == [None, f"Bearer {TOKEN}"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>", "its answer is not JSON: "),
        (b"[" * 100_000, "its answer is not JSON: "),
        (b"[]", "its answer is JSON, but not an object: "),
        (b"null", "its answer is JSON, but not an object: "),
    ],
)
def test_an_answer_of_another_program_is_named(body: bytes, words: str) -> None:
    with server(200, {}, body) as (place, _), pytest.raises(DoiProxyError, match=words):
        AdminClient(place, None).settings()
