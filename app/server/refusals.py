"""Answers of the server itself, to requests that never reach the application."""

from __future__ import annotations

from http import HTTPStatus

#: Seconds after which a client that found no room may try again.
RETRY_AFTER = 1


def refusal(status: int, text: str, default_headers: bytes) -> bytes:
    """A whole answer that announces the end of its connection (RFC 9112, section 9.6)."""
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
