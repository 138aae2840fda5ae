"""Answers that the server gives without the application, to requests that it refuses."""

from __future__ import annotations

from typing import Final

from doi_proxy.web.header import header_lines
from doi_proxy.web.problem import problem
from doi_proxy.web.responses import write_reply

#: Seconds after which a client may try again if too many connections were open.
RETRY_AFTER: Final = (b"retry-after", b"1")
#: The connection ends after the answer (RFC 9112, section 9.6).
_CLOSE: Final = header_lines(((b"connection", b"close"),))
_TOKENS: Final = {503: "too-many-connections"}


def refusal(status: int, text: str, default_headers: bytes, base: str) -> bytes:
    """The bytes of an answer with `connection: close`: a problem as the application writes it (RFC 9457).

    `base` is the path of this resolver without a slash at its end.
    """
    headers = (RETRY_AFTER,) if status == 503 else ()
    reply = problem(status, text, headers, token=_TOKENS.get(status), base=base)
    return write_reply(reply, default_headers, _CLOSE, head_only=False)
