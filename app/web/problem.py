"""Errors of the admin API and of other JSON endpoints of our own: problem details (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from app.web.freshness import NO_STORE
from app.web.header import Header
from app.web.responses import Reply

#: RFC 9457, section 6.1.
PROBLEM: Final[Header] = (b"content-type", b"application/problem+json")


def problem(status: int, detail: str, headers: tuple[Header, ...] = ()) -> Reply:
    """A problem without a type of its own: its title is the phrase of the status (RFC 9457, section 4.2.1)."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return Reply(status, (PROBLEM, *headers), msgspec.json.encode(body), (NO_STORE,))
