"""A reply and its framing: the headers of every answer, for ASGI and as the bytes of HTTP/1.1."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from doi_names.name import HandleName
from doi_names.presentation import to_url
from doi_proxy.errors import CouldNotVerify, Quota, ShareSpent
from doi_proxy.resolver.resolution import Resolution, Standing, find_standing
from doi_proxy.web.freshness import CACHE_NAME, NO_STORE, VARY_LANGUAGE, Terms, failure_token
from doi_proxy.web.negotiation import SAME_FOR_ALL, Varies
from doi_proxy.web.request_path import Header, header_lines

if TYPE_CHECKING:
    from handle_protocol.location import Location

#: Attributes of a location and the link parameters they become.
_PARAMETERS: Final = (
    ("anchor", "anchor"),
    ("rel", "rel"),
    ("media-type", "type"),
    ("ctype", "type"),
    ("target-type", "target-type"),
    ("media", "media"),
    ("hreflang", "hreflang"),
)


#: Characters that are removed from a quoted string, and those that need a backslash (RFC 9110, section 5.6.4).
_DROPPED: Final = re.compile(r"[^\x20-\x7e]")
_ESCAPED: Final = re.compile(r'["\\]')
#: Longer parameters are cut, because front proxies accept only a few kilobytes of headers.
MAX_CHARACTERS: Final = 500
_MAX_LANGUAGE: Final = 35


def link_header(location: Location, url: str) -> Header:
    """One `Link` header; `url` is ASCII. A title that is not ASCII is encoded by RFC 8187."""
    parts, seen = [f"<{url.replace('>', '%3E')}>"], set[str]()
    for attribute, parameter in _PARAMETERS:
        value = location.get(attribute)
        if value and parameter not in seen:
            seen.add(parameter)
            parts.append(f"{parameter}={_quote(value)}")
    title = (location.get("title") or "")[:MAX_CHARACTERS]
    if title:
        is_ascii = title.isascii() and title.isprintable()
        language = re.sub(r"[^A-Za-z0-9-]", "", location.get("titlelang") or "")[:_MAX_LANGUAGE]
        coded = quote(title.encode("utf-8", "replace"), safe="")
        parts.append(f"title={_quote(title)}" if is_ascii else f"title*=UTF-8'{language}'{coded}")
    return b"link", "; ".join(parts).encode("ascii")


def cite_as(resolution: Resolution) -> tuple[Header, ...]:
    """The address by which a registered DOI name is cited (RFC 8574). No header for other names and local records."""
    if not resolution.name.is_doi or find_standing(resolution) is not Standing.REGISTERED:
        return ()
    return ((b"link", f'<{to_url(resolution.name)}>; rel="cite-as"'.encode()),)


def _quote(text: str) -> str:
    return '"' + _ESCAPED.sub(r"\\\g<0>", _DROPPED.sub("", text[:MAX_CHARACTERS])) + '"'


def retry_after(seconds: float) -> Header:
    """`Retry-After` in whole seconds, at least one (RFC 9110, section 10.2.3)."""
    return b"retry-after", b"%d" % max(1, ceil(seconds))


def seconds_to_wait(failure: CouldNotVerify) -> int | None:
    """The value of `Retry-After`. None if it is not known when to try again."""
    return None if failure.retry_after is None else max(1, ceil(failure.retry_after))


def quota_headers(quota: Quota, seconds: float) -> tuple[Header, ...]:
    """The headers of a 429: when to try again, the limit, and what is left of it.

    RateLimit and RateLimit-Policy are structured fields (draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4).
    """
    return (
        retry_after(seconds),
        (b"ratelimit-policy", f'"{quota.name}";q={quota.amount};w={quota.window}'.encode()),
        (b"ratelimit", f'"{quota.name}";r=0;t={max(1, ceil(seconds))}'.encode()),
        # In addition to those that every answer exposes (WHATWG Fetch, section 3.3.3).
        (b"access-control-expose-headers", b"RateLimit, RateLimit-Policy"),
    )


def failure_headers(failure: CouldNotVerify) -> tuple[Header, ...]:
    """The headers of "could not verify": the failure (RFC 9209), and when to try again."""
    status = f'{CACHE_NAME}; error={failure.proxy_error}; details="{failure_token(failure)}"'
    if isinstance(failure, ShareSpent):
        again = quota_headers(failure.quota, failure.retry_after)
    else:
        wait = seconds_to_wait(failure)
        again = () if wait is None else (retry_after(wait),)
    return ((b"proxy-status", status.encode()), *again)


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

HTML: Final = (b"content-type", b"text/html;charset=utf-8")
JSON: Final = (b"content-type", b"application/json;charset=utf-8")
XML: Final = (b"content-type", b"text/xml;charset=utf-8")
JAVASCRIPT: Final = (b"content-type", b"application/javascript;charset=utf-8")

#: On every answer: scripts of any page can read it, and browsers do not guess its type (WHATWG Fetch, CORS; nosniff).
COMMON_HEADERS: Final[tuple[Header, ...]] = (
    (b"access-control-allow-origin", b"*"),
    (
        b"access-control-expose-headers",
        b"Age, Cache-Control, Cache-Status, Content-Length, ETag, Expires, Link, Location, Proxy-Status, Retry-After",
    ),
    (b"x-content-type-options", b"nosniff"),
)
#: On answers that no page of another site may read.
NO_CORS_HEADERS: Final[tuple[Header, ...]] = ((b"x-content-type-options", b"nosniff"),)
#: On pages: only our own stylesheet and pictures, and no framing. `form-action` is left out on purpose: browsers apply
#: it to the redirect after the form too, whose target is the host of any publisher.
PAGE_POLICY: Final[tuple[Header, ...]] = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"same-origin"),
)
#: The status of an answer to a client that has it already (RFC 9110, section 15.4.5).
NOT_MODIFIED: Final = 304
#: Answers with these statuses have neither a body nor its length (RFC 9110, sections 15.3.5 and 15.4.5).
_BODILESS: Final = (204, NOT_MODIFIED)


class Basis(msgspec.Struct, frozen=True, gc=False):
    """The records that a reply depends on, and the function that decides the freshness of such a reply.

    The function takes the current records, and the time in whole seconds since the epoch.
    """

    resolution: Resolution
    freshness: Callable[[Resolution, int], Terms]
    #: What of a request besides its target the reply depends on.
    varies: Varies = SAME_FOR_ALL
    #: Further names: the reply depends on what memory has about them.
    find_watched: Callable[[], Sequence[HandleName]] = tuple
    #: Seconds for which the reply can be prepared. None: as long as its records are the same.
    seconds: int | None = None


class FailureBasis(msgspec.Struct, frozen=True, gc=False):
    """The failed query that a reply "could not verify" depends on."""

    name: HandleName
    #: Without a traceback. Its frames hold the reply, and Python's collector sees no cycle through this object.
    failure: CouldNotVerify
    varies: Varies = SAME_FOR_ALL


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A whole answer, without the headers that `frame` adds. The headers in `freshness` alone change with the time."""

    status: int
    headers: tuple[Header, ...]
    body: bytes = b""
    freshness: tuple[Header, ...] = ()
    #: None if the reply depends on anything else, such as a fact about the client.
    basis: Basis | FailureBasis | None = None


def frame(reply: Reply) -> tuple[Header, ...]:
    """The headers of an answer that stay the same while its record does. Those of `freshness` follow them."""
    return (*reply.headers, *_common_headers(None if reply.status in _BODILESS else len(reply.body)))


def frame_lines(reply: Reply) -> bytes:
    """The headers of `frame` as lines. Those that all answers of a length share are joined once."""
    return header_lines(reply.headers) + _common_lines(None if reply.status in _BODILESS else len(reply.body))


def _common_headers(length: int | None) -> tuple[Header, ...]:
    return COMMON_HEADERS if length is None else (*COMMON_HEADERS, (b"content-length", b"%d" % length))


@lru_cache(maxsize=4096)
def _common_lines(length: int | None) -> bytes:
    return header_lines(_common_headers(length))


async def send_reply(reply: Reply, send: Send, *, head_only: bool = False) -> None:
    """Send an answer by ASGI; for HEAD the same headers without the body (RFC 9110, section 9.3.2)."""
    headers = [*frame(reply), *reply.freshness]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head_only else reply.body})


def write_reply(reply: Reply, first: bytes, last: bytes, *, head_only: bool) -> bytes:
    """The bytes of an answer over HTTP/1.1 that keeps the connection. No header may have a control character.

    `first` and `last` are header lines before and after those of the reply.
    """
    lines, body = frame_lines(reply), b"" if head_only else reply.body
    return b"".join((status_line(reply.status), first, lines, header_lines(reply.freshness), last, b"\r\n", body))


@lru_cache(maxsize=64)
def status_line(status: int) -> bytes:
    """The first line of an answer (RFC 9112, section 4)."""
    return b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())


def page(
    status: int,
    body: bytes,
    headers: tuple[Header, ...] = (),
    *,
    freshness: tuple[Header, ...] = (NO_STORE,),
    vary: Header = VARY_LANGUAGE,
    basis: Basis | FailureBasis | None = None,
) -> Reply:
    """An HTML page. `vary` is one header: older caches read only one of several lines."""
    return Reply(status, (HTML, *PAGE_POLICY, vary, *headers), body, freshness, basis)
