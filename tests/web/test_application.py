"""An answer that is begun at once, and goes on as a task if it has to wait."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from doi_proxy.server.proxies import forwarded_scope
from doi_proxy.web.application import BEGUN, Begun
from doi_proxy.web.freshness import NO_STORE, VARY_LANGUAGE
from doi_proxy.web.request_path import header_lines
from doi_proxy.web.responses import (
    COMMON_HEADERS,
    HTML,
    JSON,
    PAGE_POLICY,
    Message,
    Reply,
    frame,
    frame_lines,
    page,
    send_reply,
    status_line,
    write_reply,
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


async def test_what_memory_knows_is_answered_at_once_and_what_has_to_be_asked_is_not() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put(NAME, url="https://target.example/")
        paths = (f"/{NAME}", f"/{NAME}?type=URL", f"/api/handles/{NAME}", f"/{NAME}?noredirect", f"/{NAME}?auth")
        assert [answer_at_once(proxy, path) for path in paths] == [None] * 5
        await proxy.get(f"/{NAME}")
        assert [(answer_at_once(proxy, path) or b"")[9:12] for path in paths] == [b"302", b"302", b"200", b"200", b""]


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


# --- A reply and its frame: the same headers for ASGI and as bytes, and the body where there may be one --------------


FRESHNESS = ((b"age", b"7"),)
REPLY = Reply(200, (JSON,), b'{"responseCode":1}', FRESHNESS)
REPLIES = st.builds(
    Reply,
    st.sampled_from([200, 204, 302, 304, 404, 503]),
    st.lists(st.sampled_from([HTML, JSON, (b"location", b"http://a/")]), max_size=3).map(tuple),
    st.binary(max_size=20),
)


async def send(reply: Reply, *, head_only: bool) -> tuple[Message, Message]:
    messages: list[Message] = []

    async def collect(message: Message) -> None:
        messages.append(message)

    await send_reply(reply, collect, head_only=head_only)
    start, body = messages
    return start, body


@given(REPLIES)
def test_a_frame_has_the_length_of_the_body_unless_the_status_has_none(reply: Reply) -> None:
    lengths = [value for name, value in frame(reply) if name == b"content-length"]
    # RFC 9110, sections 15.3.5 and 15.4.5.
    assert lengths == ([] if reply.status in (204, 304) else [b"%d" % len(reply.body)])
    assert frame(reply)[: len(reply.headers)] == reply.headers
    assert set(COMMON_HEADERS) <= set(frame(reply))


@given(REPLIES)
def test_the_lines_of_a_frame_are_its_headers(reply: Reply) -> None:
    assert frame_lines(reply) == header_lines(frame(reply))


@pytest.mark.parametrize("head_only", [False, True])
async def test_head_has_the_headers_of_get_and_no_body(head_only: bool) -> None:
    start, body = await send(REPLY, head_only=head_only)
    assert start == {"type": "http.response.start", "status": 200, "headers": [*frame(REPLY), *FRESHNESS]}
    assert body == {"type": "http.response.body", "body": b"" if head_only else REPLY.body}
    written = write_reply(REPLY, b"date: now\r\n", b"x-request-id: 1\r\n", head_only=head_only)
    head, _, rest = written.partition(b"\r\n\r\n")
    assert rest == (b"" if head_only else REPLY.body)
    lines = header_lines((*frame(REPLY), *FRESHNESS))
    assert head + b"\r\n" == b"HTTP/1.1 200 OK\r\ndate: now\r\n" + lines + b"x-request-id: 1\r\n"


@pytest.mark.parametrize("status", [200, 204, 302, 304, 404, 429, 502, 503, 504])
def test_a_status_line_has_the_phrase_of_the_status(status: int) -> None:
    assert status_line(status) == f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()


def test_a_page_is_html_with_the_policy_one_vary_and_no_caching_unless_it_says_so() -> None:
    reply = page(404, b"<p>", ((b"link", b"<a>"),))
    assert reply.headers == (HTML, *PAGE_POLICY, VARY_LANGUAGE, (b"link", b"<a>"))
    assert reply.freshness == (NO_STORE,)
    other = page(200, b"<p>", freshness=FRESHNESS, vary=(b"vary", b"*"))
    assert [value for name, value in other.headers if name == b"vary"] == [b"*"]
    assert other.freshness == FRESHNESS
