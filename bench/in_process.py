"""The application inside the measuring process: no sockets, no server, only what doi-proxy itself does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from bench.records import entry_of
from bench.servers import HOST
from doi_proxy.assembly.core import open_cache
from doi_proxy.assembly.settings import load
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.main import SuppliedParts, create
from doi_proxy.upstream.source import Source
from doi_proxy.web.application import Application
from doi_proxy.web.stage import Stage

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
    """An application and its cache. Requests reach it by ASGI."""

    def __init__(
        self,
        cache: TieredStore | None = None,
        wrap_source: Callable[[Source], Source] | None = None,
        clock: Callable[[], float] = time.time,
        access_log: Stage | None = None,
        **settings: Any,
    ) -> None:
        """`settings` replace those of a measurement: memory alone, and as much of the upstream as it can use.

        `cache`, `wrap_source` and `access_log` are those of `SuppliedParts`.
        """
        chosen = load({**_SETTINGS, **settings}, {})
        self.cache = cache or open_cache(chosen, clock)
        self._wrap_source = wrap_source
        self._upstream: Source | None = None
        parts = SuppliedParts(cache=self.cache, wrap_source=self._connect, access_log=access_log)
        self.application: Application = create(chosen, parts=parts, clock=clock)

    def _connect(self, upstream: Source) -> Source:
        self._upstream = upstream
        return self._wrap_source(upstream) if self._wrap_source else upstream

    def keep(self, names: Iterable[str], now: float) -> None:
        """Put fresh records of these names into memory."""
        for name in names:
            self.cache.memory.keep(entry_of(name, now))

    async def ask(self, path: str, body: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> int:
        """Send a GET, or a POST of a body, with further headers. Returns the status."""
        status = 0

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]

        unread = [body]

        async def receive() -> Message:
            if not unread:
                # The client stays connected, as long as the caller waits for the answer.
                await asyncio.Event().wait()
            return {"type": "http.request", "body": unread.pop(), "more_body": False}

        scope = scope_of(path)
        if body:
            scope |= {"method": "POST", "headers": [*scope["headers"], *headers]}
        await self.application(scope, receive, send)
        return status

    async def close(self) -> None:
        """Let go of connections."""
        if self._upstream is not None:
            await self._upstream.aclose()
        await self.cache.close()


@asynccontextmanager
async def in_process(
    cache: TieredStore | None = None,
    wrap_source: Callable[[Source], Source] | None = None,
    clock: Callable[[], float] = time.time,
    **settings: Any,
) -> AsyncIterator[InProcess]:
    """An application that is closed at the end."""
    one = InProcess(cache, wrap_source, clock, **settings)
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
