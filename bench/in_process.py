"""The application inside the measuring process: no sockets, no server, only what doi-proxy itself does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final
from unittest.mock import patch

import app.main
from app.assembly import Parts, assemble
from app.settings import load
from app.web.application import Application
from bench.records import entry_of
from bench.servers import HOST

Message = MutableMapping[str, Any]
_SETTINGS: Final = {
    "store_url": "memory:",
    "cache_memory_bytes": 8 * 2**30,
    "upstream_rate": 1e6,
    "upstream_burst": 1e6,
    "upstream_contact": "mailto:bench@doi-proxy.example",
}
_HEADERS: Final = [(b"host", b"127.0.0.1:8000"), (b"user-agent", b"bench"), (b"accept", b"*/*")]


class InProcess:
    """An application with its parts, which is asked by ASGI."""

    def __init__(self, **settings: Any) -> None:
        """`settings` go over those of a measurement: memory alone, and as much of the upstream as it can use."""
        made: list[Parts] = []

        def kept(*arguments: Any) -> Parts:
            made.append(assemble(*arguments))
            return made[-1]

        # `create` keeps its parts to itself; a measurement has to look into them.
        with patch.object(app.main, "assemble", kept):
            self.application: Application = app.main.create(load({**_SETTINGS, **settings}, {}))
        self.parts = made[0]

    def keep(self, names: Iterable[str], now: float) -> None:
        """Put fresh records of these names into memory."""
        for name in names:
            self.parts.cache.memory.keep(entry_of(name, now))

    async def ask(self, path: str) -> int:
        """Ask for a path; returns the status."""
        status = 0

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]

        await self.application(scope_of(path), _no_body, send)
        return status

    async def close(self) -> None:
        """Let go of connections."""
        await self.parts.resolver.close()
        await self.parts.upstream.source.aclose()
        await self.parts.cache.close()


@asynccontextmanager
async def in_process(**settings: Any) -> AsyncIterator[InProcess]:
    """An application that is closed at the end."""
    one = InProcess(**settings)
    try:
        yield one
    finally:
        await one.close()


def scope_of(path: str) -> dict[str, Any]:
    """The ASGI scope of a GET, as uvicorn makes it."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": (HOST, 8000),
        "client": (HOST, 50_000),
        "scheme": "http",
        "method": "GET",
        "root_path": "",
        "path": path,
        "raw_path": path.encode("ascii"),
        "query_string": b"",
        "headers": _HEADERS,
        "state": {},
    }


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
