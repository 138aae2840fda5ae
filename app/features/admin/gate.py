"""Who may use the admin API: a Bearer token, checked before anything of the request is read but its head.

There are two tokens. The one of operators allows everything, the one of replicas only the path of changes.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final

from fastapi import FastAPI

from app.errors import RequestTooLarge, TooManyRequests
from app.features.client_buckets import ClientBuckets, Rate
from app.features.operators import CLIENT
from app.web.failure_headers import quota_headers
from app.web.freshness import NO_STORE
from app.web.header import Header
from app.web.media_types import JSON
from app.web.problem import problem
from app.web.request import Request, media_type_of
from app.web.responses import Message, Receive, Reply, Scope, Send

#: The paths of the admin API.
ADMIN_PATH: Final = b"/admin/"
#: The path that the token of replicas allows.
CHANGES_PATH: Final = b"/admin/changes"
#: The name of the limit of wrong tokens.
WRONG_TOKENS: Final = "admin"
#: Requests of one client with a wrong token: ten at once, and one in ten seconds.
WRONG_TOKEN_RATE: Final = Rate(0.1, 10.0)
#: Limit of a body. Of a larger one, thousands of wrong members would be reported in one turn of the event loop.
_MAX_BODY_BYTES: Final = 16_384
_NOSNIFF: Final[Header] = (b"x-content-type-options", b"nosniff")
#: RFC 6750, section 3.
_CHALLENGE: Final[Header] = (b"www-authenticate", b'Bearer realm="doi-proxy admin"')
_WRONG: Final[Header] = (b"www-authenticate", b'Bearer realm="doi-proxy admin", error="invalid_token"')
_NOT_ENOUGH: Final[Header] = (b"www-authenticate", b'Bearer realm="doi-proxy admin", error="insufficient_scope"')


class TokenAccess(Enum):
    """What a token allows."""

    NOTHING = 0
    CHANGES = 1
    EVERYTHING = 2


@dataclass(frozen=True, slots=True)
class AdminTokens:
    """The token of operators and the token of replicas. One of them can be None."""

    operator: str | None
    replica: str | None

    def find_access(self, authorization: str | None) -> TokenAccess:
        """What the value of the header Authorization allows (RFC 6750, section 2.1)."""
        scheme, _, token = (authorization or "").partition(" ")
        sent = token.strip(" ").encode("latin-1")
        # Both are compared, in a time that does not depend on the first wrong byte.
        is_operator, is_replica = _is_equal(sent, self.operator), _is_equal(sent, self.replica)
        if scheme.lower() != "bearer":
            return TokenAccess.NOTHING
        return TokenAccess.EVERYTHING if is_operator else TokenAccess.CHANGES if is_replica else TokenAccess.NOTHING


def _is_equal(sent: bytes, secret: str | None) -> bool:
    return secret is not None and hmac.compare_digest(sent, secret.encode())


class AdminGate:
    """Answers requests below ADMIN_PATH. Without the right token, no request reaches the admin API."""

    def __init__(
        self,
        admin: FastAPI,
        *,
        tokens: AdminTokens,
        attempts: ClientBuckets,
        client_of: Callable[[str], str],
        base: str,
        has_listener: bool = False,
    ) -> None:
        """`attempts` limits the wrong tokens of each client. `base` is the path of this resolver.

        With `has_listener`, the gate is on an address of its own.
        """
        self._problem = partial(problem, base=base)
        #: The application behind this gate.
        self.app = admin
        self.has_listener = has_listener
        self._tokens = tokens
        self._attempts = attempts
        self._client_of = client_of
        #: The paths that are answered besides those below ADMIN_PATH.
        self.paths: frozenset[bytes] = frozenset()
        self.below: tuple[bytes, ...] = (ADMIN_PATH,)

    def add_path(self, path: bytes) -> None:
        """Answer another path."""
        self.paths |= {path}

    def set_tokens(self, tokens: AdminTokens) -> None:
        """Use other tokens from now on."""
        self._tokens = tokens

    def answers(self, path: bytes) -> bool:
        """Whether a path is behind this gate."""
        return path.startswith(ADMIN_PATH) or path in self.paths

    async def answer(self, request: Request, scope: Scope, send: Send) -> int:
        """Answer a request. Returns the status."""
        status = 500

        async def wrapped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # No CORS headers: no page of another site may read an answer.
                message["headers"] = [*_without_cache(message.get("headers", ())), _NOSNIFF, NO_STORE]
            await send(message)

        refusal = self._refuse(request)
        body = b""
        if refusal is None:
            try:
                body = await request.body(_MAX_BODY_BYTES)
            except RequestTooLarge as error:
                refusal = self._problem(413, error.message)
        if refusal is not None:
            await _send(refusal, wrapped)
        else:
            await self.app({**scope, CLIENT: self._client_of(request.client_address)}, _replay(body), wrapped)
        return status

    def _refuse(self, request: Request) -> Reply | None:
        """The refusal of a request, or None."""
        authorization = request.header(b"authorization")
        access = self._tokens.find_access(authorization)
        if access is TokenAccess.NOTHING:
            # After the comparison: a client is a network, and wrong tokens of one host must not stop the others.
            try:
                self._attempts.take(self._client_of(request.client_address))
            except TooManyRequests as error:
                return self._problem(429, "This client sent too many wrong tokens; wait.", _limits(error))
            challenge = _CHALLENGE if authorization is None else _WRONG
            return self._problem(401, "The admin API needs the header Authorization: Bearer TOKEN.", (challenge,))
        if access is TokenAccess.CHANGES and request.path != CHANGES_PATH:
            return self._problem(403, "This token reads /admin/changes and nothing else.", (_NOT_ENOUGH,))
        return self._refuse_form(request)

    def _refuse_form(self, request: Request) -> Reply | None:
        """Refuse what a browser sends for a page: an Origin (RFC 6454, section 7), or a body that a form can have."""
        if request.header(b"origin") is not None:
            return self._problem(403, "The admin API does not answer requests of web pages (header Origin).")
        # A form cannot have this type, so a page of another site cannot send it (CSRF). A form always has some type. A
        # generated client that has no body sends no type.
        media_type = request.header(b"content-type")
        is_empty = request.header(b"content-length") in (None, "0") and request.header(b"transfer-encoding") is None
        is_form = media_type_of(media_type) != JSON and not (media_type is None and is_empty)
        if request.method == "POST" and is_form:
            return self._problem(415, "The body must be JSON, with the header Content-Type: application/json.")
        return None


def _limits(error: TooManyRequests) -> tuple[Header, ...]:
    headers = quota_headers(error.quota, error.retry_after)
    return tuple(header for header in headers if not header[0].startswith(b"access-control-"))


def _without_cache(headers: object) -> list[Header]:
    return [header for header in headers if header[0] != b"cache-control"]  # type: ignore[attr-defined]


async def _send(reply: Reply, send: Send) -> None:
    length = (b"content-length", str(len(reply.body)).encode())
    await send({"type": "http.response.start", "status": reply.status, "headers": [*reply.headers, length]})
    await send({"type": "http.response.body", "body": reply.body})


def _replay(body: bytes) -> Receive:
    """Receives a body that has been read."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive
