"""`/api/handles/<handle>`: the handle system's JSON API (technical manual, chapter 14; behaviour of its proxy)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final, Literal

import msgspec
from msgspec import structs

from doi_names.errors import EmptyName, InvalidName, NotADOI
from doi_names.name import HandleName
from doi_names.presentation import read_exact, read_path
from doi_proxy.errors import FAILURES, CouldNotVerify, TooManyRequests, as_failure
from doi_proxy.resolver.resolution import CACHED, Resolution, ResolveOptions
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.web import responses
from doi_proxy.web.freshness import NO_STORE, Freshness, entity_tag
from doi_proxy.web.request import Request
from doi_proxy.web.request_path import Header, Parameters, is_true, read_api_options
from doi_proxy.web.responses import failure_headers, quota_headers
from doi_proxy.web.stage import Stages, read_conditions
from handle_protocol.referral import ResponseCode
from handle_protocol.value import JSON_STRING, escape_separators, write_values

HANDLES: Final = b"handles/"
#: Response codes of errors (technical manual, section 3.6).
ERROR: Final = 2
PROTOCOL_ERROR: Final = 4
INVALID_HANDLE: Final = 102
#: The parameter with which labels, URLs and blanks around a name are removed.
LENIENT: Final = "lenient"
_NOT_A_HANDLE: Final = (
    "“{}” cannot be a handle: before its first slash are only letters, digits, dots, hyphens and underscores. "
    "Send the name without label and URL, or add lenient=true."
)
#: What a JavaScript name cannot contain. A digit cannot be its first character.
_INVALID_IN_CALLBACK: Final = re.compile(r"[^A-Za-z0-9_$\u00a0-\u2027\u202a-\U0010ffff]|^[0-9]")
MAX_CALLBACK: Final = 256
#: Answers that are larger, or nested deeper, are not indented: 40 kB of JSON can become 38 MB.
MAX_PRETTY_BYTES: Final = 262_144
MAX_PRETTY_DEPTH: Final = 32
#: All bytes except brackets.
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class RestApi:
    """Answers the JSON API. An alias is a value like any other and is not followed."""

    def __init__(
        self,
        *,
        resolver: Resolver,
        clock: Callable[[], float],
        resolves: Literal["doi", "any"],
        stages: Stages,
    ) -> None:
        """With `resolves` "doi", text that cannot be a handle is refused without an upstream query."""
        self._resolver = resolver
        self._refuses = resolves == "doi"
        self._stages = stages
        self._clock = clock
        self._freshness = Freshness()

    async def answer(self, request: Request, path: bytes, parameters: Parameters) -> responses.Reply:
        """Answer a request for `path`, the raw path after `/api/`."""
        lower = path.lower()
        if not (lower.startswith(HANDLES) or lower == HANDLES[:-1]):
            # HEAD gets the headers of GET, Content-Length included (RFC 9110, section 9.3.2).
            method = "GET" if request.head_only else request.method
            message = f"Unknown HTTP API endpoint {method} /api/{path.decode('latin-1')}"
            return self.answer_error(404, PROTOCOL_ERROR, message, parameters)
        try:
            name = _read_name(path, parameters)
            if self._refuses and not name.can_be_handle:
                raise NotADOI(_NOT_A_HANDLE.format(name.text[:100]))
            options = read_api_options(parameters)
            resolution = await self._resolver.resolve(name, read_conditions(request, options, self._stages))
        except CouldNotVerify as error:
            return self.answer_failure(error, name, parameters)
        except TooManyRequests as error:
            return self.answer_limit(error, parameters)
        except FAILURES as error:
            failure = as_failure(error)
            code = INVALID_HANDLE if isinstance(error, InvalidName) else PROTOCOL_ERROR
            message = "Empty handle invalid" if isinstance(error, EmptyName) else failure.message
            return self.answer_error(failure.status, code, message, parameters)
        return self.answer_record(request, resolution, options, parameters)

    def answer_record(
        self, request: Request, resolution: Resolution, options: ResolveOptions, parameters: Parameters
    ) -> responses.Reply:
        """The answer from a resolution: the record, 404 if the name is not registered, or 304."""
        code, body = write_answer(resolution, options)
        kind, body = _format(body, parameters)
        tag = entity_tag(body)
        freshness = self._freshness.of_json(resolution, int(self._clock()))
        is_repeatable = resolution.origin in CACHED and not options.bypasses_cache
        basis = responses.Basis(resolution, self._freshness.json_terms) if is_repeatable else None
        if code is ResponseCode.HANDLE_NOT_FOUND:
            return responses.Reply(404, (kind, tag), body, freshness, basis)
        if _has(request, tag):
            # Without the headers of a body (RFC 9110, section 15.4.5).
            return responses.Reply(responses.NOT_MODIFIED, (tag,), b"", freshness)
        return responses.Reply(200, (kind, tag), body, freshness, basis)

    def answer_failure(self, failure: CouldNotVerify, name: HandleName, parameters: Parameters) -> responses.Reply:
        """responseCode 2. It must not be 100, which means that the name does not exist."""
        body = _object(ERROR, ("message", failure.message), ("handle", name.text))
        reply = _error(failure.status, body, failure_headers(failure), parameters)
        return structs.replace(reply, basis=responses.FailureBasis(name, failure.without_traceback()))

    def answer_limit(self, error: TooManyRequests, parameters: Parameters) -> responses.Reply:
        """A client is over one of its limits. responseCode 2, as with every temporary error."""
        headers = quota_headers(error.quota, error.retry_after)
        return _error(error.status, _object(ERROR, ("message", error.message)), headers, parameters)

    def answer_error(self, status: int, code: int, message: str, parameters: Parameters) -> responses.Reply:
        """An error of the client."""
        return _error(status, _object(code, ("message", message)), (), parameters)


def _read_name(path: bytes, parameters: Parameters) -> HandleName:
    """The name as it stands or, with `lenient`, as in the path of a resolution URL. Raises InvalidName."""
    raw = path[len(HANDLES) :]
    is_lenient = parameters.pairs and is_true(parameters.first(LENIENT))
    name = read_path(b"/" + raw) if is_lenient else read_exact(raw)
    if not name.text.strip("/"):
        raise EmptyName  # an upstream would read the path without a name
    return name


def write_answer(resolution: Resolution, options: ResolveOptions) -> tuple[ResponseCode, bytes]:
    """The response code and the JSON object about a name. The name is spelled as the client spelled it."""
    answer = resolution.entry.answer
    handle = escape_separators(msgspec.json.encode(resolution.name.text))
    if resolution.tombstone is not None:
        stone = resolution.tombstone
        return answer.code, _object(
            100, ("handle", resolution.name.text), ("message", f"{stone.reason} ({stone.date})")
        )
    if answer.code is ResponseCode.HANDLE_NOT_FOUND:
        return answer.code, b'{"responseCode":100,"handle":' + handle + b"}"
    values = answer.values
    if options.is_filtered and values != b"[]":
        values = write_values(resolution.record.select(options.types, options.indexes))
    if values == b"[]":
        return ResponseCode.VALUES_NOT_FOUND, b'{"responseCode":200,"values":[],"handle":' + handle + b"}"
    source = b"" if resolution.agency is None else b',"registry":' + _write_source(resolution)
    return ResponseCode.SUCCESS, b'{"responseCode":1,"handle":' + handle + b',"values":' + values + source + b"}"


def _write_source(resolution: Resolution) -> bytes:
    """Where a record comes from that no upstream has confirmed: the agency and the date of its file."""
    date = datetime.fromtimestamp(resolution.entry.fetched_at, UTC)
    return msgspec.json.encode({"agency": resolution.agency, "date": date.strftime("%Y-%m-%dT%H:%M:%SZ")})


def _object(code: int, *members: tuple[str, str]) -> bytes:
    return escape_separators(msgspec.json.encode({"responseCode": code, **dict(members)}))


def _error(status: int, body: bytes, headers: tuple[Header, ...], parameters: Parameters) -> responses.Reply:
    kind, body = _format(body, parameters)
    return responses.Reply(status, (kind, *headers), body, (NO_STORE,))


def _format(body: bytes, parameters: Parameters) -> tuple[Header, bytes]:
    """The media type and the body, with `pretty` and `callback` applied."""
    if not parameters.pairs:
        return responses.JSON, body
    if is_true(parameters.first("pretty")):
        body = _indent(body)
    callback = parameters.first("callback")
    if callback is None:
        return responses.JSON, body
    name = _INVALID_IN_CALLBACK.sub("_", callback[:MAX_CALLBACK])
    return responses.JAVASCRIPT, name.encode() + b"(" + body + b");"


def _indent(body: bytes) -> bytes:
    if len(body) > MAX_PRETTY_BYTES:
        return body
    brackets = JSON_STRING.sub(b"", body).translate(None, _NO_BRACKETS)
    depths = accumulate(1 if bracket in b"[{" else -1 for bracket in brackets)
    return body if any(depth > MAX_PRETTY_DEPTH for depth in depths) else msgspec.json.format(body, indent=2)


def _has(request: Request, tag: Header) -> bool:
    """Whether the client already has this body. Then the answer is 304 (RFC 9110, section 13.1.2)."""
    known = request.header(b"if-none-match") if request.method in ("GET", "HEAD") else None
    if known is None:
        return False
    tags = [known_tag.strip().removeprefix("W/") for known_tag in known.split(",")]
    return tag[1].decode() in tags or known.strip() == "*"
