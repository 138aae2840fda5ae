"""A connection that carries HTTP requests (RFC 9112), one at a time. The parser of the answers is llhttp."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import httptools

from handle_protocol.errors import ServerUnreachable, UnusableAnswer
from handle_protocol.transport.stream import StreamConnection

#: Bytes of an answer besides its body: the status line, the header fields and the framing of chunks.
_MAX_HEAD_BYTES: Final = 64 * 1024
#: Answers below this status are interim (RFC 9110, section 15.2).
_FIRST_FINAL_STATUS: Final = 200


@dataclass(slots=True)
class HttpAnswer:
    """An answer. Names of header fields are in lower case; of several fields with one name, the last counts."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""


class HttpConnection(StreamConnection[HttpAnswer]):
    """Reads answers, of a body with more than `max_bytes` only the start.

    With `ends_at_head`, as for CONNECT, an answer has no body.
    """

    def __init__(self, max_bytes: int, *, ends_at_head: bool = False) -> None:
        super().__init__()
        self._max_bytes = max_bytes
        self._ends_at_head = ends_at_head
        self._parser = httptools.HttpResponseParser(self)
        self._current = HttpAnswer()
        self._body = bytearray()

    def prepare(self) -> None:
        """See StreamConnection."""
        self._current = HttpAnswer()
        self._body = bytearray()

    def receive(self, data: bytes) -> None:
        """See StreamConnection."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # A port of the native protocol is not a port of HTTP. That concerns the interface, and not the name.
            self.fail(ServerUnreachable(detail=f"the answer is not HTTP: {error}"[:200]))
            return
        if len(self._body) > self._max_bytes:
            self._complete()
            self.close()
        elif self.received_bytes - len(self._body) > _MAX_HEAD_BYTES:
            self.fail(UnusableAnswer(f"The head of the handle server's answer is longer than {_MAX_HEAD_BYTES} bytes."))

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.Protocol. The end of the stream can be the end of the body (RFC 9112, section 6.3, item 8)."""
        if error is None and self._current.status:
            self._complete()
        super().connection_lost(error)

    # The callbacks of the parser.

    def on_message_begin(self) -> None:
        """The parser read the start of an answer, or of an interim answer."""
        self.prepare()
        if not self.is_waiting:
            self.close()  # A second answer follows the first.

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser read a header field."""
        self._current.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The parser read the whole head."""
        status = self._parser.get_status_code()
        if status >= _FIRST_FINAL_STATUS:
            self._current.status = status
            if self._ends_at_head:
                self._complete()

    def on_body(self, data: bytes) -> None:
        """The parser read a part of the body."""
        self._body += data

    def on_message_complete(self) -> None:
        """The parser read the whole answer."""
        # The length and the end of a connection do not concern a tunnel (RFC 9110, section 9.3.6).
        if self._current.status and not self._ends_at_head:
            self._complete()
            if not self._parser.should_keep_alive():
                self.close()

    def _complete(self) -> None:
        self._current.body = bytes(self._body)
        self.finish(self._current)
