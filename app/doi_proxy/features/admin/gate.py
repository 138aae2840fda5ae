"""Who may use the admin API: a Bearer token, checked before anything of the request is read but its head.

At a Unix socket of management_listen, who may open the socket may read without a token: the file system decides that.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import partial
from typing import Final

from fastapi import FastAPI

from doi_proxy.endpoints import CLIENT, OperatorGate
from doi_proxy.errors import RequestTooLarge, TooManyRequests
from doi_proxy.rationing import ClientBuckets, Rate
from doi_proxy.web import responses
from doi_proxy.web.freshness import NO_STORE
from doi_proxy.web.media_types import JSON
from doi_proxy.web.problem import problem
from doi_proxy.web.request import Request, media_type_of
from doi_proxy.web.request_path import Header
from doi_proxy.web.responses import quota_headers

#: The paths of the admin API.
ADMIN_PATH: Final = b"/admin/"
#: The name of the limit of wrong tokens.
WRONG_TOKENS: Final = "admin"
#: Requests of one client with a wrong token: ten at once, and one in ten seconds.
WRONG_TOKEN_RATE: Final = Rate(0.1, 10.0)


def _is_right(authorization: str | None, secret: str | None) -> bool:
    """Whether the value of the header Authorization has the secret (RFC 6750, section 2.1).

    It is compared in a time that does not depend on the first wrong byte.
    """
    scheme, _, sent = (authorization or "").partition(" ")
    is_equal = secret is not None and hmac.compare_digest(sent.strip(" ").encode("latin-1"), secret.encode())
    return is_equal and scheme.lower() == "bearer"


class AdminGate(OperatorGate):
    """Answers requests below ADMIN_PATH. Without the right token, no request reaches the admin API."""

    def __init__(
        self,
        admin: FastAPI,
        *,
        token: str | None,
        attempts: ClientBuckets,
        client_of: Callable[[str], str],
        base: str,
        has_listener: bool = False,
    ) -> None:
        """Without a `token`, every request is refused. `attempts` limits the wrong tokens of each client.

        `base` is the path of this resolver. With `has_listener`, the gate is at the management addresses alone.
        """
        self.base = base
        self._problem = partial(problem, base=base)
        #: The application behind this gate.
        self.app = admin
        self.has_listener = has_listener
        self._token = token
        self._attempts = attempts
        self._client_of = client_of
        #: The paths that this gate answers too, if a request to them has a token.
        self._shared: frozenset[bytes] = frozenset()
        self.below: tuple[bytes, ...] = (ADMIN_PATH,)

    def add_path(self, path: bytes) -> None:
        """Answer another path, if a request has a token. FastAPI answers the rest."""
        self._shared |= {path}

    def set_token(self, token: str | None) -> None:
        """Use another token from now on."""
        self._token = token

    def answers(self, request: Request) -> bool:
        """Whether a request is for this gate."""
        if request.path.startswith(ADMIN_PATH) or request.path not in self._shared:
            return request.path.startswith(ADMIN_PATH)
        # A front proxy may pass on another scheme that is its own.
        return (request.header(b"authorization") or "").partition(" ")[0].lower() == "bearer"

    async def answer(self, request: Request, scope: responses.Scope, send: responses.Send) -> int:
        """Answer a request. Returns the status."""
        status = 500

        async def wrapped(message: responses.Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # No CORS headers: no page of another site may read an answer.
                headers = [header for header in message.get("headers", ()) if header[0] != b"cache-control"]
                message["headers"] = [*headers, (b"x-content-type-options", b"nosniff"), NO_STORE]
            await send(message)

        refusal = self._refuse(request)
        body = b""
        if refusal is None:
            try:
                # Limit of a body. Of a larger one, thousands of wrong members would be reported in one turn of the
                # event loop.
                body = await request.body(16_384)
            except RequestTooLarge as error:
                refusal = self._problem(413, error.message)
        if refusal is not None:
            await _send(refusal, wrapped)
        else:
            await self.app({**scope, CLIENT: self._client_of(request.client_address)}, _replay(body), wrapped)
        return status

    def _refuse(self, request: Request) -> responses.Reply | None:
        """The refusal of a request, or None."""
        authorization = request.header(b"authorization")
        # A Unix socket has no port (asgi.readthedocs.io, HTTP & WebSocket 2.4, connection scope).
        is_socket = self.has_listener and (request.scope.get("server") or ("", 0))[1] is None
        is_reading = is_socket and request.method == "GET" and authorization is None
        if not is_reading and not _is_right(authorization, self._token):
            # After the comparison: a client is a network, and wrong tokens of one host must not stop the others.
            try:
                self._attempts.take(self._attempts.open(self._client_of(request.client_address)))
            except TooManyRequests as error:
                return self._problem(429, "This client sent too many wrong tokens; wait.", _limits(error))
            # RFC 6750, section 3.
            wrong = b"" if authorization is None else b', error="invalid_token"'
            challenge = b'Bearer realm="doi-proxy admin"' + wrong
            message = "The admin API needs the header Authorization: Bearer TOKEN."
            return self._problem(401, message, ((b"www-authenticate", challenge),))
        return self._refuse_form(request)

    def _refuse_form(self, request: Request) -> responses.Reply | None:
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


async def _send(reply: responses.Reply, send: responses.Send) -> None:
    length = (b"content-length", str(len(reply.body)).encode())
    await send({"type": "http.response.start", "status": reply.status, "headers": [*reply.headers, length]})
    await send({"type": "http.response.body", "body": reply.body})


def _replay(body: bytes) -> responses.Receive:
    """Receives a body that has been read."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> responses.Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive
