"""A reply and its frame: the same headers for ASGI and as bytes, and the body where there may be one."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

pytestmark = pytest.mark.anyio

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
