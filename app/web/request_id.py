"""The request ID: accepted from a client, and sent back to it."""

from __future__ import annotations

import re
from typing import Final

from app.web.header import Header
from app.web.request import Request
from app.web.responses import Message, Send

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
            message = {**message, "headers": [*message["headers"], *id_headers(identifier)]}
        await send(message)

    return send_with_id


def id_headers(identifier: str | None) -> tuple[Header, ...]:
    """The headers of an answer with a request ID; none without one."""
    if identifier is None:
        return ()
    return ((REQUEST_ID, identifier.encode()), _EXPOSED)
