"""The tools with the names of another proxy: its `POST /api/resolve`."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.assistants.tools import ServerNames, ToolBounds, Tools
from doi_proxy.features.lists.verdict import ListRow, Verdict, not_a_doi
from doi_proxy.proxy_client import parse_server
from tests.constants import MAX_NAMES
from tests.fake_upstream import EVERY_NAME
from tests.features.listening import listening
from tests.table import table
from tests.web.proxy import Proxy

# The commands are synchronous: they run in a thread, over sockets of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

URL = "http://www.doi.org/hb.html"
SERVER = "http://proxy.example"
BOUNDS = ToolBounds(result_bytes=256 * 1024, calls=8, timeout=30.0)


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[tuple[Proxy, ServerNames]]:
    async with Proxy(**settings) as proxy:
        proxy.upstream.put("10.1000/182", url=URL)
        async with listening(proxy.app, lifespan="off") as url:
            yield proxy, names_at(url)


def names_at(url: str) -> ServerNames:
    return ServerNames(parse_server(url, "--server"), 30.0)


async def ignore(done: int, total: int) -> None: ...


async def test_a_list_has_the_verdicts_of_the_proxy() -> None:
    async with served() as (proxy, names):
        proxy.upstream.fault("10.1000/broken", "reset")
        tools = Tools(names, BOUNDS, SERVER, frozenset())
        lines = ["Smith. https://doi.org/10.1000/182.", "no name", "10.1000/none", "10.1000/100%25", "10.1000/broken"]
        result = (await tools.call("check_list", {"lines": lines}, ignore)).model_dump(mode="json")
        one = (await tools.call("resolve", {"name": "doi:10.1000/182"}, ignore)).model_dump(mode="json")
    assert [(line["doi"], line["verdict"]) for line in result["lines"]] == [
        ("10.1000/182", "resolved"),
        (None, "not_a_doi"),
        ("10.1000/none", "not_found"),
        ("10.1000/100%", "not_found"),
        ("10.1000/broken", "unverified"),
    ]
    assert (one["verdict"], one["url"]) == ("resolved", URL)


async def test_suggestions_of_the_proxy_are_passed_on() -> None:
    async with served() as (_, names), names.look_up("10.1000/182.") as rows:
        row = await anext(rows)
    assert row.suggestions is not None
    assert [suggestion.doi.text for suggestion in row.suggestions] == ["10.1000/182"]


async def test_inputs_that_are_known_send_no_request() -> None:
    async with served() as (proxy, names):
        known = not_a_doi("x", "no")
        async with names.look_up_list([known, known]) as rows:
            assert [row async for row in rows] == [known, known]
        proxy.upstream.fault(EVERY_NAME, "reset")
        async with names.look_up_list([known, "10.1000/1", known]) as rows:
            assert [row.verdict for row in [row async for row in rows]] == [
                Verdict.NOT_A_DOI,
                Verdict.UNVERIFIED,
                Verdict.NOT_A_DOI,
            ]


async def test_the_refusal_of_the_proxy_is_passed_on() -> None:
    async with served(**{MAX_NAMES: 1}) as (_, names):
        with pytest.raises(DoiProxyError, match="has more than 1 names"):
            await rows_of(names, "10.1000/1", "10.1000/2")


async def rows_of(names: ServerNames, *inputs: str) -> list[ListRow]:
    async with names.look_up_list(inputs) as rows:
        return [row async for row in rows]


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[ServerNames]:
    """The names of a server that sends this answer to the first request, and ends the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\n\r\n")
        await reader.readuntil(b"\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield names_at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")


ROW = {"input": "x", "doi": "10.1/x", "verdict": "resolved", "url": URL, "ra": None, "age": 0, "stale": False}


@table(
    ("status", "body", "message"),
    [
        (404, b"<html>", "it has no /api/resolve"),
        (200, b"", "too few rows"),
        (200, b"garbage\n", "not the row of a name: 'garbage'"),
        (200, b"[]\n", "not the row"),
        (200, json.dumps(ROW | {"verdict": "other", "message": None}).encode() + b"\n", "not the row"),
        (200, b'{"error": {"status": 413, "detail": "too long"}}\n', "too long"),
        (200, b'{"error": 1}\n', "not the row"),
        (200, b"x" * 5_000_000, "a line of the answer has more than"),
        (302, b"", "redirects to 'http://x.example'"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_named(status: int, body: bytes, message: str) -> None:
    head = f"HTTP/1.1 {status} X\r\nLocation: http://x.example\r\n\r\n".encode()
    async with answering(head + body) as names:
        with pytest.raises(DoiProxyError, match=message) as caught:
            await rows_of(names, "10.1/x")
    assert caught.value.message.startswith("http://127.0.0.1:")


async def test_a_proxy_that_cannot_be_reached_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(DoiProxyError, match="no answer: "):
        await rows_of(names_at(f"http://127.0.0.1:{port}"), "10.1/x")
