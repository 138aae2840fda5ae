"""Writes the lines of the access log in a thread. A request never waits for the disk or for the reader of a pipe."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from random import Random
from threading import Thread
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from doi_proxy.system.check import CounterData, Service
from doi_proxy.web.freshness import cache_status_text
from doi_proxy.web.request import Request, answer_identifier, id_headers, sent_identifier
from doi_proxy.web.request_path import UNKNOWN_CLIENT, client_of, header_lines, read_address
from doi_proxy.web.responses import Message, Receive, Reply, Send
from doi_proxy.web.stage import Answer, PreparedRequest, Stage

#: The longest part of an address that is logged, in characters. A whole line stays below 4096 bytes (POSIX, PIPE_BUF):
#: such lines of several processes do not mix in a pipe.
MAX_PATH: Final = 2_000
#: The first level that logs no part of a client's address.
NO_CLIENTS: Final = 2
#: Bytes that are written as they are. Without quotation marks and backslashes, neither format needs escapes.
_PLAIN: Final = re.compile(rb"[!#-\[\]-~]*")
_TEXTS: Final = tuple(chr(byte) if _PLAIN.fullmatch(bytes((byte,))) else f"%{byte:02X}" for byte in range(256))
_encoder: Final = msgspec.json.Encoder()


class LogLine(msgspec.Struct, gc=False):
    """The facts of a line. `moment` is in seconds since the epoch; path and query are raw and at most MAX_PATH long."""

    moment: float
    request_id: str
    client: str
    method: str
    path: bytes
    query: bytes
    route: str
    status: int = 0
    bytes: int = 0
    seconds: float = 0.0
    cache: str | None = None

    @property
    def size(self) -> int:
        """Its size in memory, in bytes."""
        # Bytes that a line takes in memory in addition to its texts.
        return len(self.path) + len(self.query) + 500


class _Members(msgspec.Struct, gc=False):
    """What a line shows, in this order. A member that the level hides is UNSET."""

    time: str
    request_id: str
    client: str | UnsetType
    method: str
    path: str | UnsetType
    route: str
    status: int
    bytes: int
    ms: float
    cache: str | None


class LineFormat:
    """Formats lines as JSON or text, at a privacy level."""

    def __init__(self, form: Literal["json", "text"], level: int) -> None:
        self._encode = _json if form == "json" else _text
        self._level = level
        self._millisecond, self._second, self._date, self._moment = -1, -1, "", ""
        #: By the hash of an address, which Python salts in each process, until a line of another second.
        self._networks: dict[int, str | UnsetType] = {}

    def __call__(self, line: LogLine) -> bytes:
        """The line as it is written."""
        shown = _Members(
            self._time(line.moment),
            line.request_id,
            UNSET if self._level >= NO_CLIENTS else self._client(line.client),
            line.method
            if line.method in {"GET", "HEAD", "POST", "OPTIONS"}
            else escape(line.method.encode("latin-1", "replace"))[:64],
            format_path(line.path, line.query, self._level),
            line.route,
            line.status,
            line.bytes,
            # To the microsecond. `round` takes three times as long.
            int(line.seconds * 1e6 + 0.5) / 1000,
            line.cache,
        )
        return self._encode(shown)

    def _time(self, moment: float) -> str:
        """The time in UTC, to the millisecond. Lines of one millisecond share the text."""
        millisecond = int(moment * 1000)
        if millisecond != self._millisecond:
            self._millisecond = millisecond
            second, rest = divmod(millisecond, 1000)
            if second != self._second:
                self._second, self._date = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
                self._networks.clear()
            self._moment = f"{self._date}.{rest:03d}Z"
        return self._moment

    def _client(self, address: str) -> str | UnsetType:
        if self._level != 1:
            return mask_address(address, self._level)
        key = hash(address)
        network = self._networks.get(key)
        if network is None:
            # Networks of clients that are remembered.
            if len(self._networks) >= 4_096:
                self._networks.clear()
            network = self._networks[key] = mask_address(address, self._level)
        return network


def mask_address(address: str, level: int) -> str | UnsetType:
    """The client's address that a privacy level lets the log have, UNSET if it lets none."""
    if level >= NO_CLIENTS:
        return UNSET
    if level:
        # The part of an IPv6 address that is logged at level 1, in bits. That of an IPv4 address is a client.
        network = client_of(address, 48)
        return UNSET if network == UNKNOWN_CLIENT else network.partition("/")[0]
    parsed = read_address(address)
    return UNSET if parsed is None else str(parsed)


def format_path(path: bytes, query: bytes, level: int) -> str | UnsetType:
    """The raw path, and the query, that a privacy level lets the log have. Bytes that are not graphic become `%XX`."""
    if level >= 3:  # the first that logs no path
        return UNSET
    whole = path + b"?" + query if level == 0 and query else path
    text = escape(whole[: MAX_PATH + 1])
    return text if len(text) <= MAX_PATH else text[:MAX_PATH] + "..."


def escape(raw: bytes) -> str:
    """Graphic ASCII without quotation marks and backslashes; other bytes as `%XX` (RFC 3986, section 2.1)."""
    return raw.decode("ascii") if _PLAIN.fullmatch(raw) else "".join([_TEXTS[byte] for byte in raw])


def _json(shown: _Members) -> bytes:
    return _encoder.encode(shown) + b"\n"


def _text(shown: _Members) -> bytes:
    values = ((name, getattr(shown, name)) for name in _Members.__struct_fields__)
    texts = ((name, str(value)) for name, value in values if value is not None and value is not UNSET)
    words = [f'{name}="{text}"' if " " in text else f"{name}={text}" for name, text in texts]
    return " ".join(words).encode("ascii", "replace") + b"\n"


#: Bytes of a path or a query that a line keeps: one more than it shows, and so it marks a text that was cut.
_MAX_BYTES: Final = MAX_PATH + 1
#: The lines around a request ID in the headers of an answer.
_BEFORE_ID, _AFTER_ID = header_lines(id_headers("\0")).split(b"\0")


class AccessLog(Stage):
    """Writes the log. `clock` is in seconds since the epoch, `timer` monotonic; `new_id` returns a new request ID."""

    def __init__(
        self,
        *,
        privacy_level: int,
        clock: Callable[[], float],
        timer: Callable[[], float],
        new_id: Callable[[], str],
        write: Callable[[LogLine], object],
    ) -> None:
        self._clock = clock
        self._timer = timer
        self._new_id = new_id
        self._write = write
        self.shows_clients = privacy_level < NO_CLIENTS

    def wrap(self, answer: Answer) -> Answer:
        """Add the request ID to each answer, and log it after its last byte."""

        async def answer_logged(request: Request, route: str, receive: Receive, send: Send) -> None:
            await answer(request, route, receive, self.watch(request, route, send))

        return answer_logged

    def watch(self, request: Request, route: str, send: Send) -> Send:
        """Wrap `send`: it adds the request ID to the answer, and logs the answer after its last byte."""
        line = self._begin(request, route)
        began = self._timer()

        async def send_logged(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                line.status, line.cache = message["status"], cache_status_text(headers)
                identifier = answer_identifier(request, line.request_id, headers)
                message = {**message, "headers": [*headers, *id_headers(identifier)]}
            else:
                line.bytes += len(message.get("body", b""))
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                line.seconds = self._timer() - began
                self._write(line)

        return send_logged

    def log_now(self, request: Request, route: str, reply: Reply, seconds: float) -> bytes:
        """Log an answer that is written in one piece. Returns its request-ID header lines."""
        line = self._begin(request, route)
        line.status, line.cache, line.seconds = reply.status, cache_status_text(reply.freshness), seconds
        line.bytes = 0 if request.head_only else len(reply.body)
        self._write(line)
        return _id_lines(answer_identifier(request, line.request_id, (*reply.headers, *reply.freshness)))

    def log_prepared(self, answered: PreparedRequest, client: str, seconds: float) -> bytes:
        """Log a prepared answer. Its request has no ID, so it gets a new one."""
        identifier = self._new_id()
        line = LogLine(
            self._clock(),
            identifier,
            client,
            answered.method,
            answered.path[:_MAX_BYTES],
            answered.query[:_MAX_BYTES],
            answered.route,
            answered.status,
            answered.size,
            seconds,
            answered.cache_status,
        )
        self._write(line)
        return _id_lines(identifier)

    def _begin(self, request: Request, route: str) -> LogLine:
        return LogLine(
            moment=self._clock(),
            request_id=sent_identifier(request) or self._new_id(),
            client=request.client_address if self.shows_clients else "",
            method=request.method,
            path=request.path[:_MAX_BYTES],
            query=request.query[:_MAX_BYTES],
            route=route,
        )


def _id_lines(identifier: str | None) -> bytes:
    return b"" if identifier is None else b"".join((_BEFORE_ID, identifier.encode(), _AFTER_ID))


def new_access_log(privacy_level: int, clock: Callable[[], float], write: Callable[[LogLine], object]) -> AccessLog:
    """A log whose request IDs are random."""
    random_bits = Random().getrandbits  # noqa: S311 - a request ID is not a secret
    return AccessLog(
        privacy_level=privacy_level,
        clock=clock,
        timer=time.perf_counter,
        new_id=lambda: random_bits(64).to_bytes(8).hex(),
        write=write,
    )


log = logging.getLogger(__name__)

#: Bytes of lines that can wait: about 16,000 lines. Others are lost.
MAX_WAITING: Final = 8 * 2**20
#: Seconds for which the thread gathers lines, unless the last ones were written longer ago: a line that comes alone is
#: written at once. Formatted one after the other, a line takes a third of the time that it
#: takes between two requests, when it finds the processor's caches full of something else.
GATHER: Final = 0.01
#: Seconds that the end of the process waits for a reader that stands still.
CLOSE_TIMEOUT: Final = 2.0
LOST_LINES: Final = CounterData(
    "access_log_lost_lines",
    "Lines of the access log that were not written: standard output was full, closed or not read in time, or the "
    "program has a fault, which the log names.",
)


class LineWriter:
    """Writes lines to a file descriptor, in their order. A line that cannot be written is counted and lost."""

    def __init__(self, descriptor: int, form: Callable[[LogLine], bytes], *, max_waiting: int = MAX_WAITING) -> None:
        """`max_waiting` bounds the bytes of lines that wait."""
        self._descriptor = descriptor
        self._form = form
        self._max_waiting = max_waiting
        #: None ends the thread.
        self._lines: SimpleQueue[LogLine | None] = SimpleQueue()
        self._thread: Thread | None = None
        # The caller alone changes the first two, and the thread alone the others, so none of them needs a lock.
        self._accepted = self._refused = 0
        self._done = self._failed = self._reported = 0
        self._is_failing = self._has_unformatted = False

    @property
    def lost(self) -> int:
        """Lines that were not written."""
        return self._refused + self._failed

    def write(self, line: LogLine) -> None:
        """Write a line soon. It is lost if too many bytes wait already."""
        if self._accepted - self._done > self._max_waiting:
            self._refused += 1
            return
        self._accepted += line.size
        self._lines.put(line)
        if self._thread is None:
            # A daemon: a reader that stands still cannot keep the process from ending.
            self._thread = Thread(target=self._run, name="access-log", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write the lines that wait. Gives up after CLOSE_TIMEOUT. A later line starts a new thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._lines.put(None)
            thread.join(CLOSE_TIMEOUT)

    def _run(self) -> None:
        # Bytes of one write, of whole lines. To a pipe it is at most 4096 bytes (POSIX, PIPE_BUF), so lines of several
        # processes do not mix. The thread keeps the interpreter's lock while it formats them: 0.5 ms for a file.
        most = 4_096 if _is_pipe(self._descriptor) else 16_384
        is_open, written_at = True, -inf
        while is_open:
            line = self._lines.get()
            if line is not None and time.monotonic() - written_at < GATHER:
                with suppress(OSError):  # where a sandbox refuses the system call
                    time.sleep(GATHER)
            is_open, written_at = self._write_waiting(line, most), time.monotonic()

    def _write_waiting(self, line: LogLine | None, most: int) -> bool:
        """Write a line and those that wait after it, `most` bytes at a time. Returns False at the end."""
        piece: list[bytes] = []
        size = 0
        with suppress(Empty):
            while line is not None:
                text = self._format(line)
                if piece and size + len(text) > most:
                    self._write_piece(piece)
                    piece, size = [], 0
                if text:
                    piece.append(text)
                    size += len(text)
                self._done += line.size
                line = self._lines.get_nowait()
        if piece:
            self._write_piece(piece)
        return line is not None

    def _format(self, line: LogLine) -> bytes:
        """The text of a line. Empty if a fault of the program keeps it from being formatted; the first is logged."""
        try:
            return self._form(line)
        except Exception:
            # An exception that ended the thread would end the access log, and no line would say so.
            # The warning about lost lines says that the log can be written again, which is another matter.
            self._failed += 1
            self._reported += 1
            if not self._has_unformatted:
                log.exception("a line of the access log cannot be formatted and is lost; please report this")
            self._has_unformatted = True
            return b""

    def _write_piece(self, piece: list[bytes]) -> None:
        try:
            rest = memoryview(b"".join(piece))
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except Exception as error:
            self._failed += len(piece)
            if not self._is_failing:
                reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
                log.error("the access log cannot be written: %s; its lines are lost until it can", reason)
            self._is_failing = True
        else:
            self._report_lost()

    def _report_lost(self) -> None:
        """Log how many lines were lost. Only this thread does it: standard error may be the pipe that nobody reads."""
        self._is_failing = False
        lost = self.lost
        if lost > self._reported:
            log.warning("%d lines of the access log were lost; it can be written again", lost - self._reported)
            self._reported = lost


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


class LineService(Service):
    """Writes the last lines at the end, and counts those that were lost."""

    def __init__(self, writer: LineWriter, count_lost: Callable[..., None]) -> None:
        self._writer = writer
        self._count_lost = count_lost
        self._counted = 0

    async def start(self) -> None:
        """Write the last lines also if the process ends by a fault."""
        atexit.register(self._writer.close)

    def tick(self, _late: float) -> None:
        """Count the lines that were lost."""
        lost = self._writer.lost
        if lost > self._counted:
            self._count_lost(lost - self._counted)
            self._counted = lost

    async def stop(self) -> None:
        """Write the last lines."""
        await asyncio.to_thread(self._writer.close)
        atexit.unregister(self._writer.close)
