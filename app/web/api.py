"""`/api/handles/<handle>`: the handle system's JSON API (technical manual, chapter 14; behaviour of its proxy)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate
from typing import Final

import msgspec

from app.doi.name import HandleName
from app.doi.presentation import read_exact
from app.errors import CouldNotVerify, DoiProxyError, EmptyName, InvalidName, TooManyRequests
from app.handle.answer import ResponseCode
from app.handle.record import write_values
from app.handle.value import JSON_STRING
from app.resolver.asked import Asked
from app.resolver.resolution import Origin, Resolution
from app.resolver.resolver import Resolver
from app.web.express_lane import ExpressLane
from app.web.limits import ClientLimits
from app.web.request import Request
from app.web.request_path import Parameters, is_true, read_api_asked, read_query
from app.web.responses import (
    JAVASCRIPT,
    JSON,
    NO_STORE,
    Header,
    Reply,
    cache_status,
    failure_headers,
    hit_status,
    http_date,
    lifetime,
    quota_headers,
)

HANDLES: Final = b"handles/"
#: Response codes of errors (technical manual, section 3.6).
ERROR: Final = 2
PROTOCOL_ERROR: Final = 4
INVALID_HANDLE: Final = 102
#: What a JavaScript name may hold; a digit not at its beginning.
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_$\u00a0-\u2027\u202a-\U0010ffff]|^[0-9]")
MAX_CALLBACK: Final = 256
#: Bytes of the digest in an ETag.
_TAG_BYTES: Final = 16
#: Answers that are larger, or nested deeper, are not indented: 40 kB of JSON can become 38 MB.
MAX_PRETTY_BYTES: Final = 262_144
MAX_PRETTY_DEPTH: Final = 32
#: All bytes but brackets.
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class HandleApi:
    """Answers the JSON API from a resolver; aliases are data here and are never followed."""

    def __init__(
        self,
        *,
        resolver: Resolver,
        limits: ClientLimits,
        clock: Callable[[], float],
        max_age: float,
        express: ExpressLane | None,
    ) -> None:
        self._resolver = resolver
        self._limits = limits
        self._clock = clock
        self._max_age = max_age
        self._express = express

    def at_once(self, request: Request, path: bytes) -> Reply | None:
        """The answer that `answer` gives, where the record is at hand; None where it is not. Raises as `answer`."""
        if path[: len(HANDLES)].lower() != HANDLES:
            return None
        parameters = read_query(request.query)
        asked = read_api_asked(parameters)
        found = None if asked.bypasses else self._resolver.at_hand(read_exact(path[len(HANDLES) :]))
        if found is None:
            return None
        reply = self.found(request, found, asked, parameters)
        self._resolver.give(found)
        return reply

    async def answer(self, request: Request, path: bytes, parameters: Parameters) -> Reply:
        """Answer a request for `path`, which is raw and begins behind `/api/`."""
        lower = path.lower()
        if not (lower.startswith(HANDLES) or lower == HANDLES[:-1]):
            # HEAD is answered as GET is, down to the length (RFC 9110, section 9.3.2).
            method = "GET" if request.head_only else request.method
            said = f"Unknown HTTP API endpoint {method} /api/{path.decode('latin-1')}"
            return self.failed(404, PROTOCOL_ERROR, said, parameters)
        try:
            name = read_exact(path[len(HANDLES) :])
            asked = read_api_asked(parameters)
            resolution = await self._resolved(request, name, asked)
        except CouldNotVerify as failure:
            return self.could_not_verify(failure, name, parameters)
        except TooManyRequests as error:
            return self.too_many_requests(error, parameters)
        except DoiProxyError as error:
            code = INVALID_HANDLE if isinstance(error, InvalidName) else PROTOCOL_ERROR
            message = "Empty handle invalid" if isinstance(error, EmptyName) else error.message
            return self.failed(error.status, code, message, parameters)
        return self.found(request, resolution, asked, parameters)

    async def _resolved(self, request: Request, name: HandleName, asked: Asked) -> Resolution:
        # Without a task switch where it is fresh in memory.
        fresh = None if asked.bypasses else self._resolver.peek(name)
        return fresh or await self._resolver.resolve(name, self._limits.demand(request, asked))

    def found(self, request: Request, resolution: Resolution, asked: Asked, parameters: Parameters) -> Reply:
        """The answer about a name that the upstream, or the cache, knows something of."""
        code, body = write_answer(resolution, asked)
        headers = self._freshness(resolution, int(self._clock()))
        reply = _written(404 if code is ResponseCode.HANDLE_NOT_FOUND else 200, body, headers, parameters, tagged=True)
        if self._express is not None and request.is_plain and _is_plain(resolution, code):
            self._express.offer(request.scope["raw_path"], reply, resolution, self._freshness)
        return _unless_known(request, reply)

    def _freshness(self, resolution: Resolution, now: int) -> tuple[Header, ...]:
        if resolution.origin is Origin.HIT:
            return _hit_headers(resolution.entry.fetched_at, resolution.entry.fresh_until, now, self._max_age)
        if resolution.origin is Origin.BYPASSED:
            return (NO_STORE, cache_status(resolution, now))
        until, max_age = lifetime(resolution, now, self._max_age)
        if resolution.origin is Origin.STALE:
            control = f"public, max-age={int(max_age)}".encode()
            return ((b"cache-control", control), (b"expires", http_date(int(until))), cache_status(resolution, now))
        age = resolution.entry.age(now)
        return (*_fresh_headers(age, until, max_age, now), cache_status(resolution, now))

    def could_not_verify(self, failure: CouldNotVerify, name: HandleName, parameters: Parameters) -> Reply:
        """responseCode 2: never 100, which would say that the name does not exist."""
        body = _object(ERROR, ("message", failure.message), ("handle", name.text))
        return _written(failure.status, body, failure_headers(failure), parameters)

    def too_many_requests(self, error: TooManyRequests, parameters: Parameters) -> Reply:
        """The client is over one of its limits; responseCode 2, as with every error that may pass."""
        headers = (NO_STORE, *quota_headers(error.quota, error.retry_after))
        return _written(error.status, _object(ERROR, ("message", error.message)), headers, parameters)

    def failed(self, status: int, code: int, message: str, parameters: Parameters) -> Reply:
        """An error of the caller's."""
        return _written(status, _object(code, ("message", message)), (NO_STORE,), parameters)


def write_answer(resolution: Resolution, asked: Asked) -> tuple[ResponseCode, bytes]:
    """The response code and the JSON object about a name, spelled as the caller spelled it."""
    answer = resolution.entry.answer
    handle = msgspec.json.encode(resolution.name.text)
    if answer.code is ResponseCode.HANDLE_NOT_FOUND:
        return answer.code, b'{"responseCode":100,"handle":' + handle + b"}"
    values = answer.values
    if asked.filtered and values != b"[]":
        values = write_values(resolution.record.select(asked.types, asked.indexes))
    if values == b"[]":
        return ResponseCode.VALUES_NOT_FOUND, b'{"responseCode":200,"values":[],"handle":' + handle + b"}"
    return ResponseCode.SUCCESS, b'{"responseCode":1,"handle":' + handle + b',"values":' + values + b"}"


def _object(code: int, *members: tuple[str, str]) -> bytes:
    return msgspec.json.encode({"responseCode": code, **dict(members)})


@lru_cache(maxsize=4096)
def _hit_headers(fetched_at: float, fresh_until: float, now: int, max_age: float) -> tuple[Header, ...]:
    # It may have ended while something else was waited for.
    left = max(0.0, fresh_until - now)
    fresh = _fresh_headers(max(0.0, now - fetched_at), now + left, min(left, max_age), now)
    return (*fresh, hit_status(fresh_until - now))


def _fresh_headers(age: float, until: float, max_age: float, now: int) -> tuple[Header, ...]:
    return (
        # max-age counts from when the upstream answered, as Age does (RFC 9111, section 4.2.3).
        (b"cache-control", f"public, max-age={int(age) + int(max_age)}".encode()),
        (b"expires", http_date(int(min(until, now + max_age)))),
        (b"age", str(int(age)).encode()),
    )


def _written(
    status: int, body: bytes, headers: tuple[Header, ...], parameters: Parameters, *, tagged: bool = False
) -> Reply:
    kind = JSON
    if parameters.pairs:
        if is_true(parameters.first("pretty")):
            body = _indent(body)
        callback = parameters.first("callback")
        if callback is not None:
            name = _NO_NAME.sub("_", callback[:MAX_CALLBACK])
            kind, body = JAVASCRIPT, name.encode() + b"(" + body + b");"
    if tagged:
        return Reply(status, (kind, *headers, (b"etag", entity_tag(body))), body)
    return Reply(status, (kind, *headers), body)


def entity_tag(body: bytes) -> bytes:
    """A strong ETag (RFC 9110, section 8.8.3): two bodies have the same one only if their digests collide."""
    return b'"%s"' % blake2b(body, digest_size=_TAG_BYTES).hexdigest().encode()


def _indent(body: bytes) -> bytes:
    if len(body) > MAX_PRETTY_BYTES:
        return body
    brackets = JSON_STRING.sub(b"", body).translate(None, _NO_BRACKETS)
    depths = accumulate(1 if bracket in b"[{" else -1 for bracket in brackets)
    return body if any(depth > MAX_PRETTY_DEPTH for depth in depths) else msgspec.json.format(body, indent=2)


def _is_plain(resolution: Resolution, code: ResponseCode) -> bool:
    return resolution.origin is Origin.HIT and code is ResponseCode.SUCCESS


def _unless_known(request: Request, reply: Reply) -> Reply:
    """304 where the caller holds this very body (RFC 9110, section 13.1.2)."""
    safe = reply.status == 200 and request.method in ("GET", "HEAD")
    known = request.header(b"if-none-match") if safe else None
    if known is None:
        return reply
    tag = reply.headers[-1][1].decode()
    tags = [one.strip().removeprefix("W/") for one in known.split(",")]
    return Reply(304, reply.headers) if tag in tags or known.strip() == "*" else reply
