"""The bytes that one client sends, cut where a head, a chunk or a body ends."""

from __future__ import annotations

from typing import Final

from doi_proxy.server.framing import END, end_of_part

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
