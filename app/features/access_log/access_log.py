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
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final, Literal

import msgspec

from app.web.freshness import cache_status_text
from app.web.header import header_lines
from app.web.request import Request
from app.web.request_id import id_headers, sent_identifier
from app.web.responses import Message, Receive, Reply, Send
from app.web.route import PREPARED
from app.web.stage import Answer, PreparedRequest, Stage

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


class AccessLog(Stage):
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
        self.shows_clients = privacy_level < _NO_CLIENTS

    def wrap(self, answer: Answer) -> Answer:
        """Add the request ID to each answer, and log it after its last byte."""

        async def answer_logged(request: Request, route: str, receive: Receive, send: Send) -> None:
            await answer(request, route, receive, self.watch(request, route, send))

        return answer_logged

    def watch(self, request: Request, route: str, send: Send) -> Send:
        """Wrap `send`: it adds the request ID to the answer, and logs the answer after its last byte."""
        identifier = self._identifier(request)
        line = self._begin(request.method, request.path, request.query, request.client_address, route, identifier)
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

    def log_now(self, request: Request, route: str, reply: Reply, seconds: float) -> bytes:
        """Log an answer that is written in one piece. Returns its request-ID header lines."""
        identifier, size = self._identifier(request), 0 if request.head_only else len(reply.body)
        line = self._begin(request.method, request.path, request.query, request.client_address, route, identifier)
        return self._log(line, reply.status, size, cache_status_text(reply.freshness), seconds)

    def log_prepared(self, answered: PreparedRequest, seconds: float) -> bytes:
        """Log a prepared answer. Its request has no ID, so it gets a new one."""
        line = self._begin(answered.method, answered.path, b"", answered.client, PREPARED, self._new_id())
        return self._log(line, answered.status, answered.size, answered.cache_status, seconds)

    def _log(self, line: dict[str, Any], status: int, size: int, cache: str | None, seconds: float) -> bytes:
        line["status"], line["bytes"], line["cache"] = status, size, cache
        self._end(line, seconds)
        return header_lines(id_headers(line["request_id"]))

    def _identifier(self, request: Request) -> str:
        return sent_identifier(request) or self._new_id()

    def _begin(
        self, method: str, path: bytes, query: bytes, address: str, route: str, identifier: str
    ) -> dict[str, Any]:
        line: dict[str, Any] = {"time": _time(self._clock()), "request_id": identifier}
        client = mask_address(address, self._level)
        if client is not None:
            line["client"] = client
        line["method"] = escape(method.encode("latin-1", "replace"))[:MAX_WORD]
        shown = format_path(path, query, self._level)
        if shown is not None:
            line["path"] = shown
        return {**line, "route": route, "status": 0, "bytes": 0, "ms": 0.0, "cache": None}

    def _end(self, line: dict[str, Any], seconds: float) -> None:
        line["ms"] = round(seconds * 1000, 3)
        self._write(self._format(line))


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
