"""Answers that the server gives without the application, to requests that it refuses."""

from __future__ import annotations

from http import HTTPStatus

#: Seconds after which a client may try again if too many connections were open.
RETRY_AFTER = 1


def refusal(status: int, text: str, default_headers: bytes) -> bytes:
    """The bytes of an answer with `connection: close` (RFC 9112, section 9.6)."""
    body = text.encode("ascii")
    lines = [
        b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode()),
        default_headers,
        b"content-type: text/plain;charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body),
        b"retry-after: %d\r\n" % RETRY_AFTER if status == HTTPStatus.SERVICE_UNAVAILABLE else b"",
        b"\r\n",
        body,
    ]
    return b"".join(lines)
