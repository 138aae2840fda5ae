"""A stand-in for `POST /api/resolve` on loopback that answers or fails as a test plans it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.accepting import accept_into, close_server


class Request(NamedTuple):
    """A request that arrived."""

    target: str
    #: Each line: a name, or an object with one.
    names: list[Any]


class BatchServer:
    """`plan` has what happens to the next requests; afterwards all are answered. The steps:

    "ok", "429" with Retry-After, "wrong" with the row of another name, "cut N" closes after N rows, "error N"
    and "refusal N" end after N rows with an error object of status 503 or 413, "stall N" sends nothing after N rows.
    """

    def __init__(self) -> None:
        self.plan: list[str] = []
        self.requests: list[Request] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(accept_into(self._tasks, self._writers, self._serve), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await close_server(self._server, self._tasks, self._writers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, asyncio.CancelledError):
            await self._answer(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line[15:]) for line in head.splitlines() if line.lower().startswith("content-length:"))
        names = [json.loads(line) for line in (await reader.readexactly(length)).splitlines()]
        self.requests.append(Request(head.split(" ")[1], names))
        step, _, number = (self.plan.pop(0) if self.plan else "ok").partition(" ")
        if step == "429":
            problem = json.dumps({"detail": "This client is over its limit."}).encode()
            fields = f"Content-Length: {len(problem)}\r\nRetry-After: 1\r\nConnection: close"
            writer.write(f"HTTP/1.1 429 X\r\n{fields}\r\n\r\n".encode() + problem)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/x-ndjson\r\n\r\n")
        for name in [one["doi"] if isinstance(one, dict) else one for one in names][: int(number or len(names))]:
            _send(writer, _row("10.9999/other" if step == "wrong" else name))
            await writer.drain()
        if step == "stall":
            await reader.read()
        elif step == "error":
            _send(writer, {"error": {"status": 503, "detail": "The budget is spent."}})
        elif step == "refusal":
            _send(writer, {"error": {"status": 413, "detail": "The list has more than 1 names."}})
        if step != "cut":
            writer.write(b"0\r\n\r\n")


def _send(writer: asyncio.StreamWriter, members: dict[str, Any]) -> None:
    line = json.dumps(members).encode() + b"\n"
    writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")


def _row(name: str) -> dict[str, Any]:
    return {
        "input": name,
        "doi": name,
        "verdict": "resolved",
        "url": "https://example.org/",
        "ra": None,
        "age": 0,
        "stale": False,
        "message": None,
    }
