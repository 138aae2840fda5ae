"""The request ID: accepted from a client, and sent back to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from doi_proxy.web.freshness import CACHE_CONTROL
from doi_proxy.web.header import Header
from doi_proxy.web.request import Request
from doi_proxy.web.responses import Message, Send

REQUEST_ID: Final = b"x-request-id"
#: A request ID that is accepted from a client. Any other is replaced.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_EXPOSED: Final[Header] = (b"access-control-expose-headers", b"X-Request-ID")


def sent_identifier(request: Request) -> str | None:
    """The request ID that the client sent, None if it sent none that is accepted."""
    sent = request.header(REQUEST_ID)
    return sent if sent is not None and _REQUEST_ID.fullmatch(sent) else None


def echo_identifier(request: Request, send: Send) -> Send:
    """Wrap `send`: it adds the request ID of the client to the answer. For a service without an access log."""
    identifier = sent_identifier(request)
    if identifier is None:
        return send

    async def send_with_id(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"]
            message = {**message, "headers": [*headers, *id_headers(answer_identifier(request, identifier, headers))]}
        await send(message)

    return send_with_id


def answer_identifier(request: Request, identifier: str | None, headers: Iterable[Header]) -> str | None:
    """The request ID that an answer with these headers has. None if it has none.

    A shared cache would send the ID of one client to the others, so an answer that it may store (RFC 9111, section 3)
    has no ID of a client.
    """
    if identifier is None or identifier != request.header(REQUEST_ID):
        return identifier
    caching = next((value for name, value in headers if name == CACHE_CONTROL), b"")
    return identifier if b"private" in caching or b"no-store" in caching else None


def id_headers(identifier: str | None) -> tuple[Header, ...]:
    """The headers of an answer with a request ID; none without one."""
    if identifier is None:
        return ()
    return ((REQUEST_ID, identifier.encode()), _EXPOSED)
