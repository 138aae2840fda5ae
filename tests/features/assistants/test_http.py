"""`doi-proxy mcp --http`, with the SDK's own client and without it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from mcp import Client

from app.features.assistants.server import list_hosts
from app.features.assistants.tools import ToolBounds
from tests.fake_upstream import FakeUpstream
from tests.features.assistants.processes import DEADLINE, serving_http

pytestmark = [pytest.mark.anyio, pytest.mark.process]

URL = "http://www.doi.org/hb.html"
TOO_MANY = b"calls are answered at a time"


@pytest.fixture(scope="module")
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as upstream:
        upstream.put("10.1000/182", url=URL)
        yield upstream


@pytest.fixture(scope="module")
async def url(upstream: FakeUpstream) -> AsyncIterator[str]:
    async with serving_http(upstream.url, "--mcp-hosts", "mcp.example.org") as url:
        yield url


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_checks_a_list(url: str, mode: str) -> None:
    reports: list[float] = []

    async def watch(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)

    async with asyncio.timeout(DEADLINE), Client(url, mode=mode) as client:
        lines = ["Smith. https://doi.org/10.1000/182.", "10.1000/none", "x"]
        result = await client.call_tool("check_list", {"lines": lines}, progress_callback=watch)
    assert result.structured_content is not None
    verdicts = [line["verdict"] for line in result.structured_content["lines"]]
    assert verdicts == ["resolved", "not_found", "not_a_doi"]
    assert reports == sorted(reports)


async def test_clients_side_by_side_get_their_own_answers(url: str) -> None:
    async def ask(number: int) -> bool:
        async with asyncio.timeout(DEADLINE), Client(url, mode="legacy") as client:
            result = await client.call_tool("parse", {"texts": [f"10.1000/{number}"]})
            return result.structured_content is not None and result.structured_content["texts"][0]["suffix"] == str(
                number
            )

    assert all(await asyncio.gather(*(ask(number) for number in range(4))))


def body_of(tool: str, arguments: object) -> bytes:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    return json.dumps(call).encode()


async def post(
    url: str, body: bytes, *, host: str | None = None, origin: str | None = None, length: int | None = None
) -> bytes:
    """Send one request and read the whole answer."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {host or parts.netloc}\r\nConnection: close\r\n"
    head += "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    if origin is not None:
        head += f"Origin: {origin}\r\n"
    writer.write(f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body)
    try:
        return await asyncio.wait_for(reader.read(), DEADLINE)
    finally:
        writer.close()


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        (None, None, 200),
        ("mcp.example.org", None, 200),
        (None, "http://mcp.example.org", 200),
        ("attacker.example", None, 421),
        ("127.0.0.1.attacker.example", None, 421),
        ("localhost", None, 421),  # without the port
        (None, "http://attacker.example", 403),
        (None, "http://localhost:1", 403),
        (None, "null", 403),
    ],
)
async def test_a_page_of_another_site_is_refused(url: str, host: str | None, origin: str | None, status: int) -> None:
    assert status_of(await post(url, body_of("parse", {"texts": ["x"]}), host=host, origin=origin)) == status


async def test_a_message_that_is_too_large_is_refused(url: str) -> None:
    assert status_of(await post(url, b"", length=4 * 1024 * 1024 + 1)) == 413


@pytest.mark.parametrize("piece", [b'"a":1,', b"[],", b"{},"])
async def test_a_message_with_too_many_values_is_refused_in_words(url: str, piece: bytes) -> None:
    answer = await post(url, b"[" + piece * 15_000 + b"1]")
    assert status_of(answer) == 413
    assert b"colons and brackets" in answer


@pytest.mark.parametrize("body", [b"", b"garbage", b"[" * 10_000, b"\xff", b"[]", b'{"jsonrpc": "2.0"}', b"1" * 9_000])
async def test_garbage_is_a_bad_request(url: str, body: bytes) -> None:
    assert status_of(await post(url, body)) == 400


async def test_other_paths_and_methods_are_refused(url: str) -> None:
    assert status_of(await post(url + "x", b"{}")) == 404
    assert status_of(await post(url.replace("/mcp", "/10.1000/182"), b"{}")) == 404


async def test_a_client_that_leaves_stops_the_work(upstream: FakeUpstream) -> None:
    held = [f"10.1000/held-{number}" for number in range(ToolBounds().calls)]
    async with serving_http(upstream.url) as url:
        parts, writers = urlsplit(url), []
        for name in held:
            upstream.hold(name)
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
            body = body_of("check_list", {"lines": [name]})
            head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            head += f"Accept: application/json, text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await upstream.arrived(name)
            writers.append(writer)
        assert TOO_MANY in await post(url, body_of("resolve", {"name": "10.1000/other"}))
        assert TOO_MANY not in await post(url, body_of("parse", {"texts": ["x"]}))
        for writer in writers:
            writer.close()
        async with asyncio.timeout(DEADLINE):
            # The place of the call is free again, although its lookup has no answer.
            while TOO_MANY in await post(url, body_of("resolve", {"name": "10.1000/other"})):
                pass


@pytest.mark.parametrize(
    ("host", "others", "hosts"),
    [
        ("127.0.0.1", "", ["127.0.0.1:8010", "localhost:8010", "[::1]:8010"]),
        ("::", "", ["127.0.0.1:8010", "localhost:8010", "[::1]:8010"]),
        (
            "192.0.2.1",
            "mcp.example.org x.example:9",
            [
                *("127.0.0.1:8010", "localhost:8010", "[::1]:8010", "192.0.2.1:8010"),
                *("mcp.example.org:8010", "x.example:9", "mcp.example.org"),
            ],
        ),
    ],
)
def test_the_hosts_of_requests(host: str, others: str, hosts: list[str]) -> None:
    assert list_hosts(host, 8010, others) == hosts
