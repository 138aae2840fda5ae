"""Reads the dump of a handle server in pieces: one JSON object, or names that are followed by their values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from handle_protocol.errors import InvalidDump

#: Bytes of one record, with the blanks of its layout, and of one piece that is read.
MAX_RECORD_BYTES: Final = 4 * 1024 * 1024
_PIECE: Final = 64 * 1024
_BYTE_ORDER_MARK: Final = "\ufeff"
_BLANK: Final = re.compile(r"\s*")
_decode: Final = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class DumpRecord:
    """A handle, and its values in the JSON of the handle API. Nothing of them is checked."""

    handle: str
    values: Any


def read_dump(file: BinaryIO) -> Iterator[DumpRecord]:
    """The records of a dump in its order. Raises InvalidDump, also at the end if the dump is not complete."""
    text, handle = _Text(file), None
    try:
        text.skip_mark()
        for record in _read_json(text) if text.peek() == "{" else _read_list(text):
            handle = record.handle
            yield record
    except InvalidDump as error:
        place = "before its first record" if handle is None else f"after the record of {handle[:200]!r}"
        raise InvalidDump(f"{place}: {error}") from error


def _read_json(text: _Text) -> Iterator[DumpRecord]:
    """`{"homedPrefixes": […], "handleRecords": {"10.1000/1": {"handle": …, "values": […]}}}`."""
    has_records = False
    for member in _members(text):
        if member != "handleRecords":
            text.value()
            continue
        has_records = True
        for handle in _members(text):
            record = text.value()
            yield DumpRecord(handle, record.get("values") if isinstance(record, dict) else record)
    if not has_records or text.peek():
        raise InvalidDump("the dump has no handleRecords, or something follows it")


def _members(text: _Text) -> Iterator[str]:
    text.expect("{")
    while text.peek() != "}":
        name = text.value()
        text.expect(":")
        if not isinstance(name, str):
            raise InvalidDump("a member of the dump has no name")
        yield name
        if text.peek() != "}":
            text.expect(",")
    text.expect("}")


def _read_list(text: _Text) -> Iterator[DumpRecord]:
    """A line with a handle, the array of its values, and an empty line."""
    while text.peek():
        yield DumpRecord(text.line(), text.value())


class _Text:
    """The text of a file, of which at most one record is in memory."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = ""
        self._bytes = b""
        self._at = 0
        self._is_read = False

    def peek(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            found = _BLANK.match(self._left, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._left) or not self._read(_PIECE):
                return self._left[self._at : self._at + 1]

    def skip_mark(self) -> None:
        """Skip the byte order mark that some editors write."""
        self._read(_PIECE)
        self._at = len(_BYTE_ORDER_MARK) if self._left.startswith(_BYTE_ORDER_MARK) else 0

    def expect(self, character: str) -> None:
        """Read one character."""
        if self.peek() != character:
            raise InvalidDump(f"the dump is not complete: {character!r} is missing")
        self._at += 1

    def line(self) -> str:
        """The rest of the line."""
        size = _PIECE
        while (end := self._left.find("\n", self._at)) < 0:
            if not self._read(size):
                raise InvalidDump("the dump is not complete: a handle has no values")
            size = len(self._left)
        line, self._at = self._left[self._at : end], end + 1
        return line.rstrip()

    def value(self) -> Any:
        """The next JSON value."""
        self.peek()
        size = _PIECE
        while True:
            try:
                value, end = _decode(self._left, self._at)
            except (ValueError, RecursionError) as error:
                # Twice as much each time: the time stays in proportion to the bytes.
                if isinstance(error, RecursionError) or not self._read(size):
                    # The line and the column of the message are those of the piece, and not of the file.
                    reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
                    raise InvalidDump(f"the dump cannot be read: {reason[:200]}") from error
                size = len(self._left)
                continue
            # A number may go on in the next piece.
            if end == len(self._left) and self._read(_PIECE):
                continue
            self._at = end
            return value

    def _read(self, size: int) -> bool:
        """Read more. Whether there was more. Raises InvalidDump if one record is too long."""
        if self._is_read:
            return False
        self._left, self._at = self._left[self._at :], 0
        if len(self._left) > MAX_RECORD_BYTES:
            raise InvalidDump(f"a record of the dump is longer than {MAX_RECORD_BYTES} bytes")
        piece = self._file.read(size)
        self._is_read = not piece
        try:
            text = (self._bytes + piece).decode()
            self._bytes = b""
        except UnicodeDecodeError as error:
            if self._is_read or error.start < len(self._bytes + piece) - 4:
                # The first bytes of a compressed file (RFC 1952, section 2.3.1). They are not UTF-8.
                reason = "is compressed; unpack it" if piece.startswith(b"\x1f\x8b") else "is not UTF-8"
                raise InvalidDump(f"the dump {reason}") from error
            whole = self._bytes + piece
            text, self._bytes = whole[: error.start].decode(), whole[error.start :]
        self._left += text
        return bool(piece)
