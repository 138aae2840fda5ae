"""`GET /api/restricted/<name>`: the values of a record that authorised readers may see.

It is a path of its own, so no answer for all clients has the same address: no cache, here or between, can confuse them.
The gate answers it without the parts that cache, prepare, compress or describe answers.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import msgspec

from app.doi.name import HandleName
from app.doi.presentation import read_exact
from app.errors import CouldNotVerify, DoiProxyError, InvalidAnswer, NameTooLong, PrefixDenied, TooManyRequests
from app.features.client_buckets import ClientBuckets, Rate
from app.features.restricted.errors import IdentityRefused
from app.features.restricted.file import Readers
from app.features.restricted.reader import RestrictedReader
from app.handle.answer import Answer, ResponseCode
from app.handle.record import Record, read_values, write_values
from app.resolver.options import ResolveOptions
from app.web.client_network import client_of
from app.web.failure_headers import quota_headers
from app.web.freshness import PERSONAL
from app.web.header import Header
from app.web.problem import error_problem, problem
from app.web.request import Request
from app.web.request_path import MAX_REQUEST_TARGET_BYTES, read_api_options, read_query
from app.web.responses import JSON, Reply, Scope, Send

RESTRICTED_PATH: Final = b"/api/restricted/"
#: The name of the limit of wrong tokens.
WRONG_TOKENS: Final = "restricted"
#: Requests of one client with a wrong token: ten at once, and one in ten seconds.
WRONG_TOKEN_RATE: Final = Rate(0.1, 10.0)
#: The headers of every answer, also of a refusal. CORS headers are absent: a page of another site cannot read answers.
_HEADERS: Final[tuple[Header, ...]] = (
    PERSONAL,
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
#: RFC 6750, section 3.
_CHALLENGE: Final[Header] = (b"www-authenticate", b'Bearer realm="doi-proxy restricted"')
_WRONG: Final[Header] = (b"www-authenticate", b'Bearer realm="doi-proxy restricted", error="invalid_token"')
_ALLOW: Final[Header] = (b"allow", b"GET, HEAD")
#: What a browser says of a request that a page of another site makes (Fetch Metadata).
_FOREIGN: Final = ("cross-site", "same-site")
#: Values that prove an identity themselves. No reader gets them, whatever the identity may read.
_KEY_TYPE: Final = "HS_SECKEY"


class ReaderGate:
    """Answers requests below RESTRICTED_PATH. See Gate."""

    def __init__(
        self,
        reader: RestrictedReader,
        readers: Readers,
        *,
        admit: Callable[[str], None],
        attempts: ClientBuckets,
        count: Callable[..., None],
        public_url: str | None,
        base: str,
    ) -> None:
        """`admit` counts a request of a client, `attempts` its wrong tokens, `count` results. `base` is our path."""
        self.paths: frozenset[bytes] = frozenset()
        self.below: tuple[bytes, ...] = (RESTRICTED_PATH,)
        self._reader = reader
        self._readers = readers
        self._admit = admit
        self._attempts = attempts
        self._count = count
        self._host = urlsplit(public_url or "").netloc.lower()
        self._problem = partial(problem, base=base)
        self._base = base

    def set_readers(self, readers: Readers) -> None:
        """Let other readers in from now on."""
        self._readers = readers

    def answers(self, path: bytes) -> bool:
        """See Gate."""
        return path.startswith(RESTRICTED_PATH)

    async def answer(self, request: Request, scope: Scope, send: Send) -> int:
        """See Gate."""
        reply = await self._reply(request)
        length = (b"content-length", b"%d" % len(reply.body))
        kept = [header for header in reply.headers if not header[0].startswith(b"access-control-")]
        await send({"type": "http.response.start", "status": reply.status, "headers": [*kept, *_HEADERS, length]})
        await send({"type": "http.response.body", "body": b"" if request.head_only else reply.body})
        return reply.status

    async def _reply(self, request: Request) -> Reply:
        name: HandleName | None = None
        try:
            self._admit(request.client_address)
            if (refusal := self._refuse(request)) is not None:
                self._count("refused")
                return refusal
            if len(request.path) + len(request.query) > MAX_REQUEST_TARGET_BYTES:
                raise NameTooLong(f"The address is longer than {MAX_REQUEST_TARGET_BYTES} bytes.")
            name = read_exact(request.path[len(RESTRICTED_PATH) :])
            options = read_api_options(read_query(request.query))
            answer = await self._reader.read(name, client_of(request.client_address))
            # A large record takes milliseconds.
            reply = await asyncio.to_thread(_write, name, answer, options)
        except DoiProxyError as error:
            self._count(_classify(error))
            return error_problem(error, base=self._base, name=name)
        self._count("answered")
        return reply

    def _refuse(self, request: Request) -> Reply | None:
        """The refusal of a request before its name is read, or None."""
        if request.method not in ("GET", "HEAD"):
            return self._problem(405, "This path answers GET and HEAD.", (_ALLOW,))
        if request.header(b"origin") is not None or request.header(b"sec-fetch-site") in _FOREIGN:
            return self._problem(403, "Restricted values are not for pages of other sites.")
        authorization = request.header(b"authorization")
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            return None if self._is_in_network(request) else self._refuse_reader(request, _CHALLENGE)
        return None if self._is_token(token.strip(" ").encode("latin-1")) else self._refuse_reader(request, _WRONG)

    def _is_token(self, sent: bytes) -> bool:
        # All are compared, each in a time that does not depend on the first wrong byte.
        return sum(hmac.compare_digest(sent, token) for token in self._readers.tokens) > 0

    def _is_in_network(self, request: Request) -> bool:
        # A browser sends an address by itself, so the host must be ours: a page of another site can give its own host
        # name our address (DNS rebinding), and then its requests look like those of our own pages.
        host = (request.header(b"host") or "").lower()
        return bool(self._host) and host == self._host and request.client_address in self._readers.networks

    def _refuse_reader(self, request: Request, challenge: Header) -> Reply:
        # After the comparison: a client is a network, and wrong tokens of one host must not stop the others.
        try:
            self._attempts.take(client_of(request.client_address))
        except TooManyRequests as error:
            text = "This client sent too many requests without a valid token; wait."
            return self._problem(429, text, quota_headers(error.quota, error.retry_after))
        text = "Restricted values need the header Authorization: Bearer TOKEN, or a network that the operator names."
        return self._problem(401, text, (challenge,))


def _classify(error: DoiProxyError) -> str:
    """The result of a request that failed, for the counter."""
    if isinstance(error, IdentityRefused):
        return "identity-refused"
    if isinstance(error, InvalidAnswer):
        return "untrusted"
    return "failed" if isinstance(error, CouldNotVerify) and not isinstance(error, PrefixDenied) else "refused"


def _write(name: HandleName, answer: Answer, options: ResolveOptions) -> Reply:
    """The JSON of the handle API, without values that prove an identity."""
    body: dict[str, object] = {"responseCode": int(answer.code), "handle": name.text}
    if answer.code is ResponseCode.HANDLE_NOT_FOUND:
        return Reply(404, (JSON,), msgspec.json.encode(body))
    values = read_values(answer.values).select(options.types, options.indexes).values
    shown = tuple(value for value in values if value.folded_type.partition(".")[0] != _KEY_TYPE)
    if not shown:
        body["responseCode"] = int(ResponseCode.VALUES_NOT_FOUND)
    return Reply(200, (JSON,), msgspec.json.encode({**body, "values": msgspec.Raw(write_values(Record(shown)))}))
