"""The encodings of lists: UTF-8, UTF-16, and where a byte is neither, Windows-1252."""

from __future__ import annotations

import codecs
from functools import cache
from typing import Final

_MARKS: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_MARK_BYTES: Final = 2
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


class Utf8Stream:
    """Turns UTF-16 into UTF-8. The bytes of any other encoding stay as they are. A mark is removed."""

    def __init__(self) -> None:
        self._first = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._is_known = False

    def feed(self, data: bytes) -> bytes:
        """The next bytes. The first ones wait until the encoding is known."""
        if not self._is_known:
            self._first += data
            if len(self._first) < _MARK_BYTES:
                return b""
            data = self._begin()
        return data if self._decoder is None else self._decoder.decode(data).encode("utf-8", "replace")

    def end(self) -> bytes:
        """The last bytes."""
        data = b"" if self._is_known else self._begin()
        if self._decoder is None:
            return data
        return self._decoder.decode(data, final=True).encode("utf-8", "replace")

    def _begin(self) -> bytes:
        self._is_known = True
        mark = self._first[:_MARK_BYTES]
        name = _MARKS.get(mark)
        if name is not None:
            self._first = self._first[_MARK_BYTES:]
        elif mark.count(0) == 1:
            # Without a mark: the first character of a list is ASCII.
            name = "utf-16-be" if mark[0] == 0 else "utf-16-le"
        if name is not None:
            self._decoder = codecs.getincrementaldecoder(name)("replace")
        return self._first


def decode_bytes(data: bytes) -> tuple[str, bool]:
    """A text, and whether it is UTF-8. Each byte that is not is read as Windows-1252."""
    try:
        return data.decode("utf-8"), True
    except UnicodeDecodeError:
        return data.decode("utf-8", windows_1252_errors()), False


def open_decoder() -> codecs.IncrementalDecoder:
    """A decoder of a text in pieces, which reads bytes as `decode_bytes` does. A byte order mark is left out."""
    return codecs.getincrementaldecoder("utf-8-sig")(windows_1252_errors())


@cache
def windows_1252_errors() -> str:
    """The name of the error handler that reads a byte as Windows-1252: one character for each byte."""
    name = "doi-proxy-windows-1252"
    codecs.register_error(name, _read_bytes)
    return name


def _read_bytes(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    # Windows-1252 leaves five bytes undefined.
    return error.object[error.start : error.end].decode("cp1252", "replace"), error.end
