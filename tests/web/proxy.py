"""The whole application in this process, with the fake upstream. It is called as an ASGI server calls it.

    async with running() as proxy:
        proxy.upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
        reply = await proxy.get("/10.1000/182?noredirect", accept_language="de")
        assert reply.status == 200

The clock of the application stands still until `proxy.clock.advance`. Budget and breaker are out of the way unless
settings say otherwise. Every answer is checked for what any answer must be, and against the OpenAPI document. No test
repeats it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import count
from typing import Any, Final
from urllib.parse import unquote

from doi_proxy.assembly.lifecycle import Lifecycle
from doi_proxy.assembly.settings import Settings
from doi_proxy.main import create
from doi_proxy.web.application import Application
from tests.clock import Clock
from tests.constants import BYPASSES, FAILURE_TTL, changed, split
from tests.fake_upstream import FakeUpstream
from tests.features.openapi.described import describe
from tests.world.answer import Reply, check_described, check_reply

#: The settings and constants of all tests that do not set others. A failed name is queried again at once.
OUT_OF_THE_WAY: Final[dict[str, Any]] = {
    "store_url": "memory:",
    "upstream_contact": "mailto:library@example.org",
    "upstream_rate": 1e6,
    "upstream_burst": 1e6,
    "upstream_breaker_failures": 10**6,
    FAILURE_TTL: 0.0,
    BYPASSES: 1e6,
}


class Proxy:
    """A running application with its upstream and its clock."""

    def __init__(self, app: Application, upstream: FakeUpstream, clock: Clock, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.upstream = upstream
        self.clock = clock
        self._names = count(1)

    def name(self) -> str:
        """A new DOI name for each call."""
        return f"10.5555/name-{next(self._names)}"

    async def get(self, target: str | bytes, **headers: str) -> Reply:
        """GET; keywords are header fields, "_" for "-"."""
        return await self.ask("GET", target, **headers)

    async def head(self, target: str | bytes, **headers: str) -> Reply:
        """HEAD."""
        return await self.ask("HEAD", target, **headers)

    async def post(self, target: str | bytes, body: str | bytes, **headers: str) -> Reply:
        """POST; a form, unless `content_type` is set."""
        given = {"content_type": "application/x-www-form-urlencoded", **headers}
        return await self.ask("POST", target, body=body, **given)

    async def ask(
        self,
        method: str,
        target: str | bytes,
        *,
        body: str | bytes = b"",
        http_version: str = "1.1",
        client: str = "192.0.2.7",
        **headers: str,
    ) -> Reply:
        """One request from the address `client`. The target is sent unchanged, neither normalised nor encoded."""
        raw = target.encode("utf-8") if isinstance(target, str) else target
        path, _, query = raw.partition(b"?")
        scope = _scope(method, path, query, http_version, client, headers)
        return await _exchange(self.app, scope, body.encode() if isinstance(body, str) else body, self.settings)


def _scope(
    method: str, path: bytes, query: bytes, http_version: str, client: str, headers: dict[str, str]
) -> dict[str, Any]:
    fields = {"host": "doi.example.org", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": http_version,
        "method": method,
        "scheme": "http",
        "path": unquote(path.decode("latin-1")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in fields.items()],
        "client": (client, 50000),
        "server": ("127.0.0.1", 8000),
    }


async def _exchange(app: Application, scope: dict[str, Any], body: bytes, settings: Settings) -> Reply:
    sent: list[dict[str, Any]] = []
    pieces = [body[at : at + 65_536] for at in range(0, len(body), 65_536)] or [b""]

    ended = asyncio.Event()

    async def receive() -> dict[str, Any]:
        piece = pieces.pop(0) if pieces else None
        if piece is None:
            await ended.wait()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            ended.set()

    await app(scope, receive, send)
    start, *rest = sent
    assert start["type"] == "http.response.start"
    assert {message["type"] for message in rest} == {"http.response.body"}
    assert [message.get("more_body", False) for message in rest] == [True] * (len(rest) - 1) + [False]
    got_body = b"".join(message.get("body", b"") for message in rest)
    fields = tuple((key.decode("ascii"), value.decode("ascii")) for key, value in start["headers"])
    reply = Reply(start["status"], fields, got_body)
    check_reply(reply, scope["method"], scope["raw_path"], is_streamed=len(rest) > 1)
    check_described(await describe(), reply, scope["method"], scope["raw_path"], settings)
    return reply


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Proxy]:
    """Start an application with these settings and constants, and stop it at the end."""
    async with running_with(None, **settings) as proxy:
        yield proxy


@asynccontextmanager
async def running_with(
    lifecycle: Lifecycle | None, *, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[Proxy]:
    """The same with a lifecycle, which can reload it, or with another clock."""
    # A feature may have been removed with its settings; see tools/removable.py.
    usual = {name: value for name, value in OUT_OF_THE_WAY.items() if _is_installed(name)}
    constants, settings = split({**usual, **settings})
    with changed(constants):
        async with FakeUpstream() as upstream:
            clock = clock or Clock()
            chosen = Settings(**{"upstream_url": upstream.url, **settings})
            app = create(chosen, clock=clock, lifecycle=lifecycle)
            async with _lifespan(app):
                yield Proxy(app, upstream, clock, chosen)


def _is_installed(name: str) -> bool:
    return name in Settings.model_fields if "." not in name else find_spec(name.rpartition(".")[0]) is not None


@asynccontextmanager
async def _lifespan(app: Application) -> AsyncIterator[None]:
    """Start and stop an application as a server does (ASGI, Lifespan Protocol)."""
    to_app: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    said: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, to_app.get, said.put))
    await to_app.put({"type": "lifespan.startup"})
    assert (await said.get())["type"] == "lifespan.startup.complete"
    try:
        yield
    finally:
        await to_app.put({"type": "lifespan.shutdown"})
        await task
