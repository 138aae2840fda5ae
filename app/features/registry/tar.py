"""Reads the members of a tar archive one after the other, with bounded memory (POSIX.1-2017, pax, "ustar Format").

The module tarfile reads an extended header of any size into memory and remembers every member. An archive comes from
outside, so headers are bounded here. Links, devices and sparse files are not followed: they are members without data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

BLOCK_BYTES: Final = 512
#: Limit of an extended header, in bytes. It holds a path and a few times.
_MAX_HEADER_BYTES: Final = 1024 * 1024
#: Bytes that are read at a time to skip data.
_SKIP_BYTES: Final = 1024 * 1024
_REGULAR: Final = (b"0", b"\0", b"7")
_FOLDER: Final = b"5"
#: Extended headers: a long name of GNU tar, and the headers of pax. The others say nothing that matters here.
_LONG_NAME: Final = b"L"
_PAX: Final = b"x"
_OTHER_HEADERS: Final = (b"K", b"g")
#: Limits of the digits of a number in a pax header.
_LENGTH_DIGITS: Final = 8
_SIZE_DIGITS: Final = 18
#: The largest size of a member, in bytes.
_MAX_SIZE: Final = 2**62
#: The high bit marks a number in base 256, in which GNU tar writes sizes from 8 GiB.
_BASE_256: Final = 0x80
_CHECKSUM: Final = slice(148, 156)


class InvalidArchive(ValueError):
    """The archive is damaged or incomplete. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive: its name, its size, and where its data begins, in bytes from the beginning."""

    name: str
    size: int
    offset: int
    #: The time at which the file was changed, in seconds since the epoch.
    date: int
    #: False for a link, a device or a sparse file.
    is_regular: bool


def is_tar(head: bytes) -> bool:
    """Whether data that begins with `head` is a tar archive."""
    return len(head) >= BLOCK_BYTES and any(head[:BLOCK_BYTES]) and _has_checksum(head[:BLOCK_BYTES])


class TarReader:
    """Reads an archive from a function that returns up to so many bytes, and none at the end."""

    def __init__(self, read: Callable[[int], bytes], skip: Callable[[int], None] | None = None) -> None:
        """`skip` moves on by a number of bytes. Without it, the data of a member that is not wanted is read."""
        self._source = read
        self._skip = skip or self._skip_by_reading
        self._position = 0
        #: Where the next header is, in bytes from the beginning.
        self._next_header = 0
        self._unread = 0

    def next(self) -> Member | None:
        """The next file. Folders are left out. None at the end. Raises InvalidArchive."""
        long_name: str | None = None
        pax: dict[str, str] = {}
        while (header := self._read_header()) is not None:
            kind, size = header[156:157], int(pax["size"]) if "size" in pax else _number(header[124:136])
            if kind in (_LONG_NAME, _PAX, *_OTHER_HEADERS):
                data = self._read_extended(_number(header[124:136]), keep=kind not in _OTHER_HEADERS)
                if kind == _LONG_NAME:
                    long_name = data.rstrip(b"\0").decode("utf-8", "replace")
                elif kind == _PAX:
                    pax = _read_pax(data)
                continue
            self._unread = size
            self._next_header = self._position + size + -size % BLOCK_BYTES
            if kind == _FOLDER:
                long_name, pax = None, {}
                continue
            name = pax.get("path") or long_name or _name_of(header)
            date = _number(header[136:148])
            return Member(name, size, self._position, date, is_regular=kind in _REGULAR and not _is_sparse(pax))
        return None

    def read(self, count: int) -> bytes:
        """Up to `count` bytes of the current member, none at its end. Raises InvalidArchive."""
        data = self._read_exactly(min(count, self._unread))
        self._unread -= len(data)
        return data

    def _read_header(self) -> bytes | None:
        self._unread = 0
        if self._next_header > self._position:
            self._skip(self._next_header - self._position)
            self._position = self._next_header
        header = self._fill(BLOCK_BYTES)
        # The end is two blocks of zeros. Some archives lack them.
        if not any(header):
            return None
        if len(header) < BLOCK_BYTES:
            raise InvalidArchive(f"the archive ends too early, after {self._position} bytes; copy the whole file")
        if not _has_checksum(header):
            raise InvalidArchive(f"the archive is damaged at byte {self._position - BLOCK_BYTES}: wrong checksum")
        self._next_header = self._position
        return header

    def _read_extended(self, size: int, *, keep: bool) -> bytes:
        if size > _MAX_HEADER_BYTES:
            raise InvalidArchive(f"a header of the archive has {size} bytes; the limit is {_MAX_HEADER_BYTES}")
        data = self._read_exactly(size)
        self._next_header = self._position + -size % BLOCK_BYTES
        return data if keep else b""

    def _read_exactly(self, count: int) -> bytes:
        data = self._fill(count)
        if len(data) < count:
            raise InvalidArchive(f"the archive ends too early, after {self._position} bytes; copy the whole file")
        return data

    def _fill(self, count: int) -> bytes:
        """Read `count` bytes, fewer only at the end of the archive."""
        data = self._source(count)
        while len(data) < count and (more := self._source(count - len(data))):
            data += more
        self._position += len(data)
        return data

    def _skip_by_reading(self, count: int) -> None:
        while count > 0:
            piece = self._source(min(count, _SKIP_BYTES))
            if not piece:
                raise InvalidArchive("the archive ends too early; copy the whole file")
            count -= len(piece)


def _has_checksum(header: bytes) -> bool:
    try:
        return _number(header[_CHECKSUM]) == sum(header) - sum(header[_CHECKSUM]) + len(header[_CHECKSUM]) * ord(" ")
    except InvalidArchive:
        return False


def _number(field: bytes) -> int:
    if field[0] & _BASE_256:
        return min(int.from_bytes(bytes([field[0] & ~_BASE_256]) + field[1:], "big"), _MAX_SIZE)
    digits = field.strip(b" \0")
    if digits and not all(b"0"[0] <= digit <= b"7"[0] for digit in digits):
        raise InvalidArchive(f"a number in a header of the archive is invalid: {digits[:20]!r}")
    return int(digits, 8) if digits else 0


def _name_of(header: bytes) -> str:
    name, prefix = header[:100].partition(b"\0")[0], header[345:500].partition(b"\0")[0]
    path = prefix + b"/" + name if prefix and header[257:262] == b"ustar" else name
    return path.decode("utf-8", "replace")


def _read_pax(data: bytes) -> dict[str, str]:
    """The records of a pax header: "<length> <key>=<value>\\n". Raises InvalidArchive."""
    records: dict[str, str] = {}
    at, end = 0, len(data.rstrip(b"\0"))
    while at < end:
        blank = data.find(b" ", at, at + _LENGTH_DIGITS)
        length = int(data[at:blank]) if blank > at and data[at:blank].isdigit() else 0
        if not 0 < blank - at < length <= end - at:
            raise InvalidArchive("an extended header of the archive is damaged")
        key, _, value = data[blank + 1 : at + length].rstrip(b"\n").partition(b"=")
        records[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        at += length
    size = records.get("size", "0")
    if not (size.isascii() and size.isdigit() and len(size) <= _SIZE_DIGITS):
        raise InvalidArchive("an extended header of the archive is damaged")
    return records


def _is_sparse(pax: dict[str, str]) -> bool:
    return any(key.startswith("GNU.sparse.") for key in pax)
