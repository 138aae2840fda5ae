"""An answer that is begun at once, and goes on as a task if it has to wait."""

from __future__ import annotations

from typing import Any, Final

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from doi_proxy.server.proxies import forwarded_scope
from doi_proxy.web.application import BEGUN, Begun
from doi_proxy.web.responses import (
    Message,
)
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio


NAME: Final = "10.1000/182"
SCOPE: Final[dict[str, Any]] = {
    "type": "http",
    "method": "GET",
    "raw_path": f"/{NAME}".encode(),
    "query_string": b"",
    "http_version": "1.1",
    "headers": [(b"host", b"doi.example.org")],
}


def answer_at_once(proxy: Proxy, path: str = f"/{NAME}", **scope: Any) -> bytes | None:
    """The answer, if it waits for nothing."""
    raw_path, _, query = path.partition("?")
    begun = proxy.app.begin({**SCOPE, "raw_path": raw_path.encode(), "query_string": query.encode(), **scope}, b"")
    if isinstance(begun, Begun):
        begun.rest.work.close()
    return begun if isinstance(begun, bytes) else None


async def test_what_watches_an_answer_from_its_beginning_makes_it_a_task() -> None:
    async with Proxy(otel_endpoint="http://127.0.0.1:1/v1/traces") as proxy:
        proxy.upstream.put(NAME, url="https://target.example/")
        await proxy.get(f"/{NAME}")
        assert proxy.app.begin(dict(SCOPE), b"") is None


@pytest.mark.parametrize("path", ["/10.1000/%ff", "/api/handles/%ff", "/not-a-doi"])
async def test_a_request_that_cannot_be_answered_is_no_fault(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Proxy() as proxy:
        assert (answer_at_once(proxy, path) or b"")[9:10] == b"4"
        assert (await proxy.get(path)).status < 500
    assert not [record for record in caplog.records if record.name.startswith("doi_proxy")]


async def test_a_large_record_is_left_to_a_task_if_a_thread_has_to_compress_it() -> None:
    path = f"/api/handles/{NAME}"
    async with Proxy() as proxy:
        for size, is_left in ((10_000, False), (40_000, True)):
            proxy.upstream.put(NAME, url="https://target.example/" + "x" * size)
            await proxy.get(f"{path}?auth")
            assert (answer_at_once(proxy, path, headers=[(b"accept-encoding", b"zstd")]) is None) == is_left
            got = await proxy.get(path, accept_encoding="zstd")
            assert (got.status, got["content-encoding"]) == (200, "zstd")


async def test_a_request_of_a_trusted_proxy_is_admitted_once_though_it_begins_at_once() -> None:
    async with Proxy(client_rate=1.0, client_burst=2) as proxy:
        proxy.upstream.put(NAME, url="https://target.example/")
        application: Any = proxy.app
        trusting: Any = ProxyHeadersMiddleware(application, "127.0.0.1")
        statuses: list[int] = []
        for path in (f"/{NAME}", "/10.1000/absent", "/10.1000/third"):
            scope = {**SCOPE, "client": ("127.0.0.1", 1), "headers": [(b"x-forwarded-for", b"192.0.2.7")]}
            scope["raw_path"] = path.encode()
            begun = proxy.app.begin(forwarded_scope(trusting, scope), b"")
            if isinstance(begun, bytes):
                statuses.append(int(begun[9:12]))
                continue
            scope[BEGUN] = begun

            async def note(message: Message) -> None:
                statuses.extend([message["status"]] if "status" in message else [])

            async def no_body() -> Message:
                return {"type": "http.request"}

            await trusting(scope, no_body, note)
        assert statuses == [302, 404, 429]
