"""Where a request ends: the length of its body, where a stream of bytes may be cut, and the header of a last answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from doi_proxy.server.host import is_host

END: Final = b"\r\n\r\n"
#: The header of a message after which the connection ends (RFC 9112, section 9.6).
CLOSE: Final = (b"connection", b"close")
#: The same as most clients send it, between two other lines of a head.
CLOSE_LINE: Final = b"\r\nConnection: close\r\n"
#: Stands for the length of a chunked body, which is known only at its last chunk (RFC 9112, section 6.3).
CHUNKED: Final = -1


def end_of_part(before: bytes, data: bytes, start: int) -> int:
    """The index in `data` after the first CR LF CR LF from `start` on, or the length of `data` if there is none.

    `before` holds up to three bytes that precede `start`. A head and a chunked body both end with CR LF CR LF (RFC
    9112, sections 2.1 and 7.1), so a part that is cut there contains the end of at most one message.
    """
    split = (before + data[start : start + 3]).find(END)
    if split >= 0:
        return start + split + len(END) - len(before)
    end = data.find(END, start)
    return len(data) if end < 0 else end + len(END)


def body_length(fields: Mapping[bytes, bytes]) -> int:
    """The length of a request's body in bytes, or CHUNKED. The parser has already checked the values."""
    return CHUNKED if b"transfer-encoding" in fields else int(fields.get(b"content-length", 0))


def add_close(answer: bytes) -> bytes:
    """A whole answer with the header CLOSE as its last one."""
    head, end, body = answer.partition(END)
    return b"".join((head, b"\r\nconnection: close", end, body))


def host_fault(headers: Sequence[tuple[bytes, bytes]], fields: Mapping[bytes, bytes], version: str) -> str | None:
    """The error in the Host header of a request, None if it is valid (RFC 9112, section 3.2).

    `fields` are the headers by name.
    """
    host = fields.get(b"host")
    if host is None:
        return None if version == "1.0" else "The request has no Host header; send one."
    if len(fields) < len(headers) and sum(name == b"host" for name, _ in headers) > 1:
        return "The request has more than one Host header; send one."
    return None if is_host(host) else "The Host header is not a host name with an optional port; correct it."
