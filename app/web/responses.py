"""The shape of an answer, headers that several kinds of answers share, and two ways to write one: ASGI and bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from math import ceil, floor
from typing import Any, Final

import msgspec

from app.errors import CouldNotVerify, Quota, ShareSpent
from app.resolver.resolution import Origin, Resolution

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

HTML: Final = (b"content-type", b"text/html;charset=utf-8")
JSON: Final = (b"content-type", b"application/json;charset=utf-8")
XML: Final = (b"content-type", b"text/xml;charset=utf-8")
JAVASCRIPT: Final = (b"content-type", b"application/javascript;charset=utf-8")
NO_STORE: Final = (b"cache-control", b"no-store")
#: On every page: its words are in a language of Accept-Language.
VARY_LANGUAGE: Final = (b"vary", b"Accept-Language")
#: The resolver's name in Cache-Status (RFC 9211) and Proxy-Status (RFC 9209).
CACHE_NAME: Final = "doi-proxy"
#: How long a browser may keep an answer that is stale already, in seconds.
STALE_MAX_AGE: Final = 30.0

#: On every answer: any page may read it, no page may guess its type (WHATWG Fetch, CORS; nosniff).
EVERYWHERE: Final[tuple[Header, ...]] = (
    (b"access-control-allow-origin", b"*"),
    (
        b"access-control-expose-headers",
        b"Age, Cache-Control, Cache-Status, Content-Length, ETag, Expires, Link, Location, Proxy-Status, Retry-After",
    ),
    (b"x-content-type-options", b"nosniff"),
)
#: On pages: nothing but our own stylesheet and pictures, no framing. `form-action` is left out on purpose: browsers
#: apply it to the redirect that answers the form, which leads to any publisher's host.
PAGE_POLICY: Final[tuple[Header, ...]] = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"same-origin"),
)


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A whole answer: status, headers apart from those that stand everywhere, body."""

    status: int
    headers: tuple[Header, ...]
    body: bytes = b""


async def send_reply(reply: Reply, send: Send, *, head_only: bool = False) -> None:
    """Send an answer; for HEAD the same headers without the body (RFC 9110, section 9.3.2)."""
    headers = [*reply.headers, *EVERYWHERE]
    if reply.status not in (204, 304):
        headers.append((b"content-length", str(len(reply.body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head_only else reply.body})


def whole_answer(reply: Reply, first: bytes, last: bytes, *, head_only: bool) -> bytes:
    """The bytes of an answer over HTTP/1.1 that keeps the connection; no header of it may hold a control character.

    `first` and `last` are header lines that stand before and behind those that `send_reply` sends.
    """
    lines = header_lines(reply.headers)
    length = b"" if reply.status in (204, 304) else b"content-length: %d\r\n" % len(reply.body)
    body = b"" if head_only else reply.body
    return b"".join((status_line(reply.status), first, lines, _EVERYWHERE_LINES, length, last, b"\r\n", body))


@lru_cache(maxsize=64)
def status_line(status: int) -> bytes:
    """The first line of an answer (RFC 9112, section 4)."""
    return b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())


def header_lines(headers: Iterable[Header]) -> bytes:
    """Headers as lines (RFC 9112, section 5)."""
    return b"\r\n".join([*map(b": ".join, headers), b""])


_EVERYWHERE_LINES: Final = header_lines(EVERYWHERE)


def page(status: int, body: bytes, headers: tuple[Header, ...] = (NO_STORE,), vary: Header = VARY_LANGUAGE) -> Reply:
    """An HTML page. `vary` is one header: older caches read only one of several lines."""
    return Reply(status, (HTML, *PAGE_POLICY, vary, *headers), body)


@lru_cache(maxsize=4096)
def http_date(seconds: int) -> bytes:
    """A date of RFC 9110, section 5.6.7, from whole seconds since the epoch."""
    return formatdate(seconds, usegmt=True).encode()


def lifetime(resolution: Resolution, now: int, max_age: float) -> tuple[float, float]:
    """How long an answer may be kept: until when (seconds since the epoch), and `max-age` in seconds."""
    if resolution.origin is Origin.STALE:
        return now + STALE_MAX_AGE, min(STALE_MAX_AGE, max_age)
    left = max(0.0, resolution.entry.ttl_left(now))
    return now + left, min(left, max_age)


def hit_status(left: float) -> Header:
    """`Cache-Status` of a fresh answer from the cache, which is so for `left` seconds (RFC 9211, section 2)."""
    return b"cache-status", f"{CACHE_NAME}; hit; ttl={floor(left)}".encode()


def cache_status(resolution: Resolution, now: int) -> Header:
    """`Cache-Status`: how this answer came about (RFC 9211)."""
    if resolution.origin is Origin.HIT:
        return hit_status(resolution.entry.ttl_left(now))
    left = floor(resolution.entry.ttl_left(now))
    # A record that ended within this second is past its TTL, and says so.
    ttl = f"ttl={min(left, -1) if resolution.origin is Origin.STALE and left <= 0 else left}"
    match resolution.origin:
        case Origin.STALE:
            said = f"hit; {ttl}; detail={failure_token(resolution.failure)}"
        case Origin.ASKED:
            said = f"fwd=uri-miss; stored; {ttl}"
        case Origin.RENEWED:
            said = f"fwd=stale; stored; {ttl}"
        case Origin.JOINED:
            said = f"fwd=uri-miss; collapsed; {ttl}"
        case Origin.BYPASSED:
            said = f"fwd=request; stored; {ttl}"
    return b"cache-status", f"{CACHE_NAME}; {said}".encode()


def failure_token(failure: CouldNotVerify | None) -> str:
    """The token of a failure; that of the general class where none is known."""
    return (failure or CouldNotVerify).token


def retry_after(seconds: float) -> Header:
    """`Retry-After` in whole seconds, at least one (RFC 9110, section 10.2.3)."""
    return b"retry-after", str(max(1, ceil(seconds))).encode()


def quota_headers(quota: Quota, seconds: float) -> tuple[Header, ...]:
    """The headers of a 429: when to try again, the limit, and what is left of it.

    RateLimit and RateLimit-Policy are structured fields (draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4).
    """
    return (
        retry_after(seconds),
        (b"ratelimit-policy", f'"{quota.name}";q={quota.amount};w={quota.window}'.encode()),
        (b"ratelimit", f'"{quota.name}";r=0;t={max(1, ceil(seconds))}'.encode()),
        # Besides those that stand on every answer (WHATWG Fetch, section 3.3.3).
        (b"access-control-expose-headers", b"RateLimit, RateLimit-Policy"),
    )


def failure_headers(failure: CouldNotVerify) -> tuple[Header, ...]:
    """The headers of "could not verify": not to be kept, which failure it was (RFC 9209), when to try again."""
    said = f'{CACHE_NAME}; error={failure.proxy_error}; details="{failure_token(failure)}"'
    if isinstance(failure, ShareSpent):
        again = quota_headers(failure.quota, failure.retry_after)
    else:
        again = () if failure.retry_after is None else (retry_after(failure.retry_after),)
    return (NO_STORE, (b"proxy-status", said.encode()), *again)
