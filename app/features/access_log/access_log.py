"""The access log: one line for each request, with as much about the client as the privacy level allows.

| level | client's address       | name               | query |
| ----- | ---------------------- | ------------------ | ----- |
| 0     | whole                  | yes                | yes   |
| 1     | its network (/24, /48) | yes                | no    |
| 2     | none                   | yes                | no    |
| 3     | none                   | no                 | no    |
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final, Literal

import msgspec

from app.web.freshness import cache_status_text
from app.web.header import Header, header_lines
from app.web.request import Request
from app.web.responses import Message, Reply, Send

REQUEST_ID: Final = b"x-request-id"
#: A request ID that is accepted from a client. Any other is replaced.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: The longest part of an address that is logged, in characters. A whole line stays below 4096 bytes (POSIX, PIPE_BUF):
#: such lines of several processes do not mix in a pipe.
MAX_PATH: Final = 2_000
MAX_WORD: Final = 64
#: Bits of an address that are logged at level 1.
_IPV4_BITS: Final = 24
_IPV6_BITS: Final = 48
#: The first level that logs no part of a client's address.
_NO_CLIENTS: Final = 2
_STANDARD_OUTPUT: Final = 1
#: Bytes that are written as they are. Without quotation marks and backslashes, neither format needs escapes.
_PLAIN: Final = frozenset(range(0x21, 0x7F)) - frozenset(b'"\\')
_EXPOSED: Final[Header] = (b"access-control-expose-headers", b"X-Request-ID")


class LoggedRequest(msgspec.Struct, frozen=True, gc=False):
    """The fields of a log line about a request. `path` and `query` are raw."""

    method: str
    path: bytes
    query: bytes
    client: str


class LoggedReply(msgspec.Struct, frozen=True, gc=False):
    """The fields of a log line about an answer: `size` is the body in bytes, `cache_status` its Cache-Status."""

    route: str
    status: int
    size: int
    cache_status: str | None


class AccessLog:
    """Writes the log. `clock` is in seconds since the epoch, `timer` monotonic; `new_id` returns a new request ID."""

    def __init__(
        self,
        *,
        form: Literal["json", "text"],
        privacy_level: int,
        clock: Callable[[], float],
        timer: Callable[[], float],
        new_id: Callable[[], str],
        write: Callable[[bytes], None],
    ) -> None:
        self._format = _json if form == "json" else _text
        self._level = privacy_level
        self._clock = clock
        self._timer = timer
        self._new_id = new_id
        self._write = write

    @property
    def shows_clients(self) -> bool:
        """Whether log lines have the client's address or its network."""
        return self._level < _NO_CLIENTS

    def watch(self, request: Request, route: str, send: Send) -> Send:
        """Wrap `send`: it adds the request ID to the answer, and logs the answer after its last byte."""
        identifier = self._identifier(request)
        line = self._begin(_request_fields(request), route, identifier)
        began = self._timer()

        async def send_logged(message: Message) -> None:
            if message["type"] == "http.response.start":
                line["status"], line["cache"] = message["status"], cache_status_text(message["headers"])
                message = {**message, "headers": [*message["headers"], *id_headers(identifier)]}
            else:
                line["bytes"] += len(message.get("body", b""))
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self._end(line, self._timer() - began)

        return send_logged

    def log_reply(self, request: Request, route: str, reply: Reply, seconds: float) -> bytes:
        """Log an answer that is written in one piece. Returns its request-ID header lines."""
        size = 0 if request.head_only else len(reply.body)
        logged = LoggedReply(route, reply.status, size, cache_status_text(reply.freshness))
        return self._log(self._identifier(request), _request_fields(request), logged, seconds)

    def log_prepared(self, request: LoggedRequest, reply: LoggedReply, seconds: float) -> bytes:
        """Log an answer of the express lane. Its request has no ID, so it gets a new one."""
        return self._log(self._new_id(), request, reply, seconds)

    def _log(self, identifier: str, request: LoggedRequest, reply: LoggedReply, seconds: float) -> bytes:
        line = self._begin(request, reply.route, identifier)
        line["status"], line["bytes"], line["cache"] = reply.status, reply.size, reply.cache_status
        self._end(line, seconds)
        return header_lines(id_headers(identifier))

    def _identifier(self, request: Request) -> str:
        return sent_identifier(request) or self._new_id()

    def _begin(self, request: LoggedRequest, route: str, identifier: str) -> dict[str, Any]:
        line: dict[str, Any] = {"time": _time(self._clock()), "request_id": identifier}
        client = mask_address(request.client, self._level)
        if client is not None:
            line["client"] = client
        line["method"] = escape(request.method.encode("latin-1", "replace"))[:MAX_WORD]
        path = format_path(request.path, request.query, self._level)
        if path is not None:
            line["path"] = path
        return {**line, "route": route, "status": 0, "bytes": 0, "ms": 0.0, "cache": None}

    def _end(self, line: dict[str, Any], seconds: float) -> None:
        line["ms"] = round(seconds * 1000, 3)
        self._write(self._format(line))


def _request_fields(request: Request) -> LoggedRequest:
    return LoggedRequest(request.method, request.path, request.query, request.client_address)


def sent_identifier(request: Request) -> str | None:
    """The request ID that the client sent, None if it sent none that is accepted."""
    sent = request.header(REQUEST_ID)
    return sent if sent is not None and _REQUEST_ID.fullmatch(sent) else None


def echo_identifier(request: Request, send: Send) -> Send:
    """Wrap `send`: it adds the request ID of the client to the answer. For a service without an access log."""
    identifier = sent_identifier(request)
    if identifier is None:
        return send

    async def send_with_id(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *id_headers(identifier)]}
        await send(message)

    return send_with_id


def id_headers(identifier: str | None) -> tuple[Header, ...]:
    """The headers of an answer with a request ID; none without one."""
    if identifier is None:
        return ()
    return ((REQUEST_ID, identifier.encode()), _EXPOSED)


def mask_address(address: str, level: int) -> str | None:
    """The client's address that a privacy level lets the log have, None if it lets none."""
    if level >= _NO_CLIENTS:
        return None
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(parsed, IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    if level == 0:
        return str(parsed)
    bits = _IPV6_BITS if isinstance(parsed, IPv6Address) else _IPV4_BITS
    return str(ip_network((parsed, bits), strict=False).network_address)


def format_path(path: bytes, query: bytes, level: int) -> str | None:
    """The raw path, and the query, that a privacy level lets the log have. Bytes that are not graphic become `%XX`."""
    if level > 2:
        return None
    whole = path + b"?" + query if level == 0 and query else path
    text = escape(whole[: MAX_PATH + 1])
    return text if len(text) <= MAX_PATH else text[:MAX_PATH] + "..."


def escape(raw: bytes) -> str:
    """Graphic ASCII without quotation marks and backslashes; other bytes as `%XX` (RFC 3986, section 2.1)."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)


def write_to_standard_output(line: bytes) -> None:
    """Write a line. A line that cannot be written is lost: the answer matters more."""
    with suppress(OSError):
        os.write(_STANDARD_OUTPUT, line)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _json(line: dict[str, Any]) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def _text(line: dict[str, Any]) -> bytes:
    words = (f"{name}={_word(value)}" for name, value in line.items() if value is not None)
    return " ".join(words).encode("ascii", "replace") + b"\n"


def _word(value: object) -> str:
    text = str(value)
    return f'"{text}"' if " " in text else text
