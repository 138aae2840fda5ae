"""An answer without a task, and what becomes of a request when that way fails."""

from __future__ import annotations

import logging
from typing import Any, Final
from unittest.mock import Mock

import pytest
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from doi_proxy.server.listening import forwarded_scope
from doi_proxy.web.application import MARKS
from doi_proxy.web.responses import Message
from tests.clock import Clock
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


class FaultyClock(Clock):
    """A clock that raises its errors one after the other, and then tells the time."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []

    def __call__(self) -> float:
        if self.errors:
            raise self.errors.pop(0)
        return super().__call__()


def answer_now(proxy: Proxy, path: str = f"/{NAME}") -> bytes | None:
    return proxy.app.answer_now({**SCOPE, "raw_path": path.encode()}, b"")


async def test_a_fault_of_the_shortcut_is_logged_once_for_each_type_and_leaves_the_request_unharmed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR, "doi_proxy.web")
    clock = FaultyClock()
    async with Proxy(clock=clock) as proxy:
        proxy.upstream.put(NAME, url="https://target.example/")
        assert (await proxy.get(f"/{NAME}")).status == 302
        for fault in (ZeroDivisionError("first"), ZeroDivisionError("second"), KeyError("third")):
            clock.errors = [fault]
            assert answer_now(proxy) is None
            assert (await proxy.get(f"/{NAME}"))["location"] == "https://target.example/"
        assert answer_now(proxy) is not None
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert [repr(error) for error in logged] == ["ZeroDivisionError('first')", "KeyError('third')"]


@pytest.mark.parametrize("path", ["/", "/10.1000/%ff", "/api/handles/%ff", "/not-a-doi"])
async def test_a_request_that_cannot_be_answered_is_no_fault(path: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Proxy() as proxy:
        assert answer_now(proxy, path) is None
        assert (await proxy.get(path)).status < 500
    assert not [record for record in caplog.records if record.name.startswith("doi_proxy")]


async def test_a_large_record_is_left_to_a_task_if_a_thread_has_to_compress_it() -> None:
    scope = {**SCOPE, "raw_path": f"/api/handles/{NAME}".encode()}
    packed = {**scope, "headers": [*scope["headers"], (b"accept-encoding", b"zstd")]}
    async with Proxy() as proxy:
        for size, is_left in ((20_000, False), (40_000, True)):
            proxy.upstream.put(NAME, url="https://target.example/" + "x" * size)
            await proxy.get(f"/api/handles/{NAME}?auth")
            assert proxy.app.answer_now(scope, b"") is not None
            assert (proxy.app.answer_now(packed, b"") is None) == is_left
            got = await proxy.get(f"/api/handles/{NAME}", accept_encoding="zstd")
            assert (got.status, got["content-encoding"]) == (200, "zstd")


async def test_a_request_of_a_trusted_proxy_is_tried_once_and_admitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Proxy(client_rate=1.0, client_burst=2) as proxy:
        proxy.upstream.put(NAME, url="https://target.example/")
        redirects = proxy.app._face.redirects
        tried = Mock(wraps=redirects.answer_now)
        monkeypatch.setattr(redirects, "answer_now", tried)
        scope: dict[str, Any] = {**SCOPE, "client": ("127.0.0.1", 1), "headers": [(b"x-forwarded-for", b"192.0.2.7")]}
        application: Any = proxy.app
        trusting: Any = ProxyHeadersMiddleware(application, "127.0.0.1")
        statuses: list[int] = []
        for path in (f"/{NAME}", "/10.1000/absent"):
            scope = {**scope, "raw_path": path.encode()}
            scope.pop(MARKS, None)
            assert proxy.app.answer_now(forwarded_scope(trusting, scope), b"") is None

            async def note(message: Message) -> None:
                statuses.append(message.get("status", 0))

            async def no_body() -> Message:
                return {"type": "http.request"}

            await trusting(scope, no_body, note)
        assert (statuses[::2], tried.call_count) == ([302, 404], 2)
