"""The probes of `doi-proxy doctor` at the proxy: a request with a fresh token is answered with what arrived of it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

#: Below it are the probes (RFC 8615), if they are switched on.
PROBE_PATH: Final = b"/.well-known/doi-proxy/probe/"
TOKEN_HEADER: Final = "doi-proxy-probe"  # noqa: S105 - the name of a header
#: Longest time from the signature of a token to its end, in seconds.
TOKEN_SECONDS: Final = 120
#: A response header that a probe can request, and its limit in bytes: a Location can be as long as an escaped name.
FILL_HEADER: Final = "doi-proxy-probe-fill"
FILL_BYTES: Final = 30_000
#: The Cache-Control of the answer that a probe can request.
_CACHING: Final = {
    "": {"cache-control": "no-store"},
    "public": {"cache-control": "public, max-age=60"},
    "vary": {"cache-control": "public, max-age=60", "vary": "Accept"},
    "private": {"cache-control": "private, max-age=60", "vary": "Accept"},
}


class Probe:
    """Recognises probes. `clock` is in seconds since the epoch."""

    def __init__(self, key: str | None, clock: Callable[[], float]) -> None:
        """`key` is the admin token. Without one, no probe is answered."""
        self._key = key
        self._clock = clock

    def set_key(self, key: str | None) -> None:
        """Use another key from now on."""
        self._key = key

    def is_valid(self, token: str) -> bool:
        """Whether a token was signed with the key and counts now."""
        text, _, signature = token.rpartition(".")
        if self._key is None or not hmac.compare_digest(
            _signature(self._key, text).encode(), signature.encode("latin-1")
        ):
            return False
        now = self._clock()
        return now <= int(text.partition(".")[0]) <= now + TOKEN_SECONDS


def sign_token(key: str, expires: int) -> str:
    """A token that is valid until `expires`, in seconds since the epoch. `key` is the admin token."""
    text = f"{expires}.{secrets.token_hex(8)}"
    return f"{text}.{_signature(key, text)}"


def _signature(key: str, text: str) -> str:
    return hmac.new(key.encode(), b"doi-proxy probe " + text.encode("latin-1"), hashlib.sha256).hexdigest()


def add_probe(app: FastAPI, probe: Probe, refuse: Callable[[Request], Response]) -> None:
    """Add the route. `refuse` answers a request without a valid token."""

    @app.api_route((PROBE_PATH + b"{rest:path}").decode(), methods=["GET", "HEAD"], include_in_schema=False)
    async def answer_probe(request: Request) -> Response:
        if not probe.is_valid(request.headers.get(TOKEN_HEADER, "")):
            return refuse(request)
        return _echo(request)


def _echo(request: Request) -> Response:
    wanted = request.query_params
    # The statuses that a probe can request.
    status = {"302": 302, "404": 404, "502": 502}.get(wanted.get("status", ""), 200)
    caching = wanted.get("cache", "")
    headers = dict(_CACHING.get(caching, _CACHING[""]))
    if "fill" in wanted:
        headers[FILL_HEADER] = "x" * FILL_BYTES
    if status == HTTPStatus.FOUND:
        headers["location"] = f"{request.scope['scheme']}://{request.headers.get('host', '')}/10.1234//a%2Fb"
    # What a cache can store for other clients says nothing about this one.
    body = {"id": secrets.token_hex(8)} | ({} if caching else _describe(request))
    return JSONResponse(body, status_code=status, headers=headers)


def _describe(request: Request) -> dict[str, Any]:
    scope, headers = request.scope, request.headers
    return {
        "method": scope["method"],
        "path": scope["raw_path"].decode("latin-1"),
        "query": scope["query_string"].decode("latin-1"),
        "scheme": scope["scheme"],
        "client": scope["client"][0] if scope.get("client") else "",
        "host": headers.get("host", ""),
        "accept": headers.get("accept", ""),
        "forwarded_for": headers.get("x-forwarded-for", ""),
        "forwarded_proto": headers.get("x-forwarded-proto", ""),
    }
