"""The heads of requests that can have a prepared answer: those that every parser reads alike, without conditions."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from doi_proxy.server.listening import is_host
from doi_proxy.web.freshness import CACHE_CONTROL
from doi_proxy.web.negotiation import SELECTING, select_variant
from doi_proxy.web.problem import problem
from doi_proxy.web.request_path import header_lines
from doi_proxy.web.responses import write_reply


class ReadingFlow(FlowControl):
    """Flow control with a hold: while the protocol holds reading, the application cannot resume it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        # Without super(), which makes an Event for each connection, although few have to wait for their client.
        self._transport = transport
        self.read_paused = self.write_paused = self._is_held = False

    @cached_property
    def _is_writable_event(self) -> asyncio.Event:  # type: ignore[override]
        (event := asyncio.Event()).set()
        return event

    def hold(self) -> None:
        """Stop reading until `release`."""
        self._is_held = True
        self.pause_reading()

    def release(self) -> None:
        """Resume reading."""
        if self._is_held:
            self._is_held = False
            self.resume_reading()

    def resume_reading(self) -> None:
        """Resume reading, unless the protocol holds it."""
        if not self._is_held:
            super().resume_reading()


def keep_alive_after_body(cycle: RequestResponseCycle, app: Any) -> Any:
    """Wrap `app`: its answer closes the connection, unless the application has read the whole body before it answers.

    The unread bytes of a body could be parsed as the next request (RFC 9112, section 9.3).
    """
    keep_alive, cycle.keep_alive = cycle.keep_alive, False

    async def run(scope: Any, receive: Any, send: Any) -> None:
        async def receive_body() -> Any:
            message = await receive()
            if message["type"] == "http.request" and not message["more_body"] and not cycle.response_started:
                cycle.keep_alive = keep_alive
            return message

        await app(scope, receive_body, send)

    return run


END: Final = b"\r\n\r\n"
#: The header of a message after which the connection ends (RFC 9112, section 9.6).
CLOSE: Final = (b"connection", b"close")
#: The same as most clients send it, between two other lines of a head.
CLOSE_LINE: Final = b"\r\nConnection: close\r\n"
#: Stands for the length of a chunked body, which is known only at its last chunk (RFC 9112, section 6.3).
CHUNKED: Final = -1


def end_of_part(before: bytes, data: bytes, start: int) -> int:
    """The index in `data` after the first CR LF CR LF from `start` on, or the length of `data` if there is none.

    `before` holds up to three bytes that precede `start`. A head and a chunked body both end with CR LF CR LF (RFC
    9112, sections 2.1 and 7.1), so a part that is cut there contains the end of at most one message.
    """
    split = (before + data[start : start + 3]).find(END)
    if split >= 0:
        return start + split + len(END) - len(before)
    end = data.find(END, start)
    return len(data) if end < 0 else end + len(END)


def body_length(fields: Mapping[bytes, bytes]) -> int:
    """The length of a request's body in bytes, or CHUNKED. The parser has already checked the values."""
    return CHUNKED if b"transfer-encoding" in fields else int(fields.get(b"content-length", 0))


def add_close(answer: bytes) -> bytes:
    """A whole answer with the header CLOSE as its last one."""
    head, end, body = answer.partition(END)
    return b"".join((head, b"\r\nconnection: close", end, body))


def host_fault(headers: Sequence[tuple[bytes, bytes]], fields: Mapping[bytes, bytes], version: str) -> str | None:
    """The error in the Host header of a request, None if it is valid (RFC 9112, section 3.2).

    `fields` are the headers by name.
    """
    host = fields.get(b"host")
    if host is None:
        return None if version == "1.0" else "The request has no Host header; send one."
    if len(fields) < len(headers) and sum(name == b"host" for name, _ in headers) > 1:
        return "The request has more than one Host header; send one."
    return None if is_host(host) else "The Host header is not a host name with an optional port; correct it."


log = logging.getLogger(__name__)


class MalformedRequests:
    """The counts of one process."""

    def __init__(self) -> None:
        self._malformed = self._upgrades = self._proxy_headers = 0
        self._next_report = 0.0

    def count_malformed(self) -> None:
        """Count a request that was answered 400 or 431."""
        self._malformed += 1

    def count_upgrade(self) -> None:
        """Count a request with an Upgrade to a protocol that this server does not support (RFC 9110, section 7.8)."""
        self._upgrades += 1

    def count_proxy_header(self) -> None:
        """Count a connection that was closed because of its header of the PROXY protocol, or without one."""
        self._proxy_headers += 1

    @property
    def is_pending(self) -> bool:
        """Whether there are counts that are not logged yet."""
        return bool(self._malformed or self._upgrades or self._proxy_headers)

    def report(self, now: float) -> None:
        """Log the counts if the last line is at least a minute old; `now` is monotonic, in seconds."""
        if not self.is_pending or now < self._next_report:
            return
        if self._malformed or self._upgrades:
            log.warning(
                "requests since the last such line: %d malformed and refused, %d with an Upgrade that was ignored",
                self._malformed,
                self._upgrades,
            )
        if self._proxy_headers:
            log.warning(
                "%d connections since the last such line were closed: they do not begin with a header of the PROXY "
                "protocol, or name a client and are not from trusted_proxies; let the front proxy send the header, add "
                "its address to trusted_proxies, or set proxy_protocol to false",
                self._proxy_headers,
            )
        self._malformed = self._upgrades = self._proxy_headers = 0
        # Seconds between two lines of the log.
        self._next_report = now + 60.0


#: A path and a query (RFC 9112, section 3.2.1). uvicorn also reads a fragment and an absolute URL.
ORIGIN_FORM: Final = re.compile(rb"/[!\"$-~]*")
#: The header lines of a request (RFC 9112, section 5), without the forms that parsers read differently.
_LINES: Final = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)+\r\n")
#: Headers with which a request takes the full path.
NOT_PLAIN: Final = frozenset(
    {
        b"authorization",
        b"content-length",
        b"transfer-encoding",
        b"expect",
        b"upgrade",
        b"if-none-match",
        b"x-request-id",
        CACHE_CONTROL,
    }
)
#: The server's parser obeys both. HTTP/1.1 does not define the second (RFC 9112, appendix C.2.2).
_CONNECTION: Final = frozenset({b"connection", b"proxy-connection"})
_HOST: Final = b"host"
#: It does not select an answer. It names the client, for limits and logs.
FORWARDED_FOR: Final = b"x-forwarded-for"
#: The bytes of its usual form: addresses only.
_ADDRESSES: Final = b"0123456789ABCDEFabcdef.:, "
#: A line of which no answer here depends, in its usual form. A reader's session is in it.
_COOKIE: Final = re.compile(rb"\r\n[Cc]ookie:[^\x00-\x08\x0a-\x1f\x7f]*(?=\r\n)")
#: That line in another form, and those in which front proxies and content delivery networks name the client (among them
#: Forwarded, RFC 7239).
_PRIVATE: Final = re.compile(
    rb"(?:\A|\n)(?:cookie|x-forwarded-for|forwarded|x-(?:real|client|cluster-client)-ip|true-client-ip"
    rb"|fastly-client-ip|cf-connecting-ip(?:v6)?):",
    re.IGNORECASE,
)
#: Longer targets, and longer header lines, take the full path.
MAX_PLAIN_BYTES: Final = 4_096
_READ: Final = frozenset({*SELECTING, FORWARDED_FOR, _HOST})


def cut_private(request: bytes) -> tuple[bytes, bytes | None]:
    """The end of a request without what its reader alone sends, and the value of its first X-Forwarded-For.

    Cut are that line and Cookie. The value is None if the line is missing or has another form.
    """
    request = request if request.find(b"ookie:") < 0 else _COOKIE.sub(b"", request)  # `sub` takes three times as long
    before, _, rest = request.partition(b"\r\nX-Forwarded-For:")
    value, end, rest = rest.partition(b"\r\n")
    return (before + end + rest, value.strip()) if value and not value.translate(None, _ADDRESSES) else (request, None)


def read_plain(head: bytes) -> Mapping[bytes, str] | None:
    """The headers that count, given the header lines of a request. None if the request takes the full path.

    Several lines are one list (RFC 9110, section 5.3).
    """
    if not _LINES.fullmatch(head):
        return None
    found: dict[bytes, list[bytes]] = {}
    for line in head.split(b"\r\n")[:-2]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name in NOT_PLAIN or (name in _CONNECTION and value.strip(b" \t").lower() != b"keep-alive"):
            return None
        if name in _READ:
            found.setdefault(name, []).append(value.strip(b" \t"))
    hosts = found.get(_HOST, ())
    if len(hosts) != 1 or not is_host(hosts[0]):
        return None
    return {name: b", ".join(values).decode("latin-1") for name, values in found.items()}


def is_private(head: bytes) -> bool:
    """Whether header lines have the address of a client or what a reader alone sends. They are not kept."""
    return _PRIVATE.search(head) is not None


def select_head(head: bytes, languages: tuple[str, ...]) -> tuple[int, bytes | None] | None:
    """What the header lines of a request select, and its X-Forwarded-For. None if the request takes the full path."""
    fields = read_plain(head)
    selected = None if fields is None else select_variant(fields.get, languages)
    if fields is None or selected is None:
        return None
    forwarded_for = fields.get(FORWARDED_FOR)
    return selected, None if forwarded_for is None else forwarded_for.encode("latin-1")


#: Seconds after which a client may try again if too many connections were open.
RETRY_AFTER: Final = (b"retry-after", b"1")
#: The connection ends after the answer (RFC 9112, section 9.6).
_CLOSE: Final = header_lines(((b"connection", b"close"),))
_TOKENS: Final = {503: "too-many-connections"}


def refusal(status: int, text: str, default_headers: bytes, base: str) -> bytes:
    """The bytes of an answer with `connection: close`: a problem as the application writes it (RFC 9457).

    `base` is the path of this resolver without a slash at its end.
    """
    headers = (RETRY_AFTER,) if status == 503 else ()
    reply = problem(status, text, headers, token=_TOKENS.get(status), base=base)
    return write_reply(reply, default_headers, _CLOSE, head_only=False)


#: The limit of a request's head. uvicorn has no limit of its own with httptools.
MAX_HEAD_BYTES: Final = 65_536


class RequestStream:
    """Cuts a stream into parts. A part contains the end of at most one message. Does no I/O."""

    __slots__ = ("_at", "_before", "_data", "_framing_bytes", "body_left", "head_bytes")

    def __init__(self) -> None:
        #: Received bytes. Those before the index `_at` are cut off already.
        self._data, self._at = b"", 0
        #: The last three bytes that were cut off an incomplete head or chunked body.
        self._before = b""
        #: Bytes of an incomplete head.
        self.head_bytes = 0
        #: The bytes left of a body, CHUNKED during a chunked body, 0 outside of a body.
        self.body_left = 0
        #: Bytes of a chunked body that are not data (sizes, extensions, trailers) since the last data.
        self._framing_bytes = 0

    @property
    def has_unread(self) -> bool:
        """Whether there are bytes to cut."""
        return bool(self._data)

    @property
    def is_in_request(self) -> bool:
        """Whether a request has begun and is not complete, or there are bytes to cut."""
        return bool(self.head_bytes or self.body_left or self._data)

    @property
    def is_head_too_large(self) -> bool:
        """Whether a head, or what frames the chunks of a body, has reached its limit.

        Trailers are header fields too (RFC 9110, section 6.5).
        """
        return self.head_bytes >= MAX_HEAD_BYTES or self._framing_bytes >= MAX_HEAD_BYTES

    def is_one_head(self, data: bytes) -> bool:
        """Whether `data` is one complete head after a complete request, like nearly every read of the socket."""
        if self.head_bytes or self.body_left or self._data:  # not by `is_in_request`: its call takes 2 % of an answer
            return False
        return 0 < data.find(END) == len(data) - len(END) < MAX_HEAD_BYTES - len(END)

    def push(self, data: bytes) -> None:
        """Add received bytes."""
        self._data = self._data[self._at :] + data if self._data else data
        self._at = 0

    def cut(self) -> bytes:
        """Cut off the next part. There must be bytes to cut."""
        data, start = self._data, self._at
        end = len(data)
        if self.body_left > 0:
            end = min(end, start + self.body_left)
        else:
            end = end_of_part(self._before, data, start)
            if not self.body_left:
                end = min(end, start + MAX_HEAD_BYTES - self.head_bytes)
        self._data, self._at = (b"", 0) if end == len(data) else (data, end)
        return data if end - start == len(data) else data[start:end]

    def count(self, part: bytes) -> None:
        """Count a part before the parser reads it."""
        if self.body_left > 0:
            self.body_left -= len(part)
        elif self.body_left:
            self._framing_bytes += len(part)
        else:
            self.head_bytes += len(part)
        self._before = (self._before + part[-3:])[-3:]

    def end_head(self, body_length: int) -> None:
        """The parser has read a whole head. `body_length` is in bytes, or CHUNKED."""
        self.head_bytes, self._before, self.body_left = 0, b"", body_length

    def note_data(self) -> None:
        """The parser has read data of a body."""
        self._framing_bytes = 0

    def end_message(self) -> None:
        """The parser has read a whole request."""
        self.head_bytes, self._framing_bytes, self.body_left, self._before = 0, 0, 0, b""

    def discard(self) -> None:
        """Drop the bytes that are not cut yet."""
        self._data, self._at = b"", 0
