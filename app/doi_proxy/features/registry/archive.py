"""Reads the members of a tar archive one after the other, with bounded memory.

The module tarfile reads a header of any length into memory. An archive comes from outside, so the headers of a member
have a limit. Links, devices and sparse files are not followed: they are members without data.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Final, cast

#: Bytes of a header, and of the padding of data.
BLOCK_BYTES: Final = tarfile.BLOCKSIZE
#: Limit of all headers of one member. Extended ones hold a path of 4,096 bytes and a few times. Python 3.11.7 reads one
#: in a time that grows with the square of its length (CVE-2024-6232).
MAX_HEADER_BYTES: Final = 16_384


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
    try:
        tarfile.TarInfo.frombuf(head[:BLOCK_BYTES], "utf-8", "replace")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


class _HeaderFile:
    """What tarfile reads headers from. It only goes forward, and refuses to read more than the limit."""

    def __init__(self, read: Callable[[int], bytes], skip: Callable[[int], None] | None) -> None:
        self._source = read
        self._skip = skip or self._skip_by_reading
        self._position = 0
        #: The bytes that were read last.
        self.last = b""
        #: Bytes that may be read before the next member is found.
        self.left = MAX_HEADER_BYTES

    def tell(self) -> int:
        """The position, in bytes from the beginning."""
        return self._position

    def seek(self, position: int) -> int:
        """Move forward."""
        if position < self._position:
            raise InvalidArchive(f"a header of the archive is damaged: it leads back to byte {position}")
        if position > self._position:
            self._skip(position - self._position)
            self._position = position
        return position

    def read(self, count: int) -> bytes:
        """Read a part of a header."""
        if not 0 <= count <= self.left:
            raise InvalidArchive(
                f"the headers of a member of the archive are longer than the limit, {MAX_HEADER_BYTES} bytes"
            )
        self.left -= count
        self.last = self.fill(count)
        return self.last

    def fill(self, count: int) -> bytes:
        """Read `count` bytes, fewer only at the end of the archive."""
        data = self._source(count)
        while len(data) < count and (more := self._source(count - len(data))):
            data += more
        self._position += len(data)
        return data

    def _skip_by_reading(self, count: int) -> None:
        while count > 0:
            # Bytes that are read at a time to skip data.
            piece = self._source(min(count, 1024 * 1024))
            if not piece:
                raise InvalidArchive("the archive ends too early; copy the whole file")
            count -= len(piece)


class ArchiveReader:
    """Reads an archive from a function that returns up to so many bytes, and none at the end."""

    def __init__(self, read: Callable[[int], bytes], skip: Callable[[int], None] | None = None) -> None:
        """`skip` moves on by a number of bytes. Without it, the data of a member that is not wanted is read."""
        self._file = _HeaderFile(read, skip)
        #: Where the next header is, in bytes from the beginning.
        self._next = 0
        self._unread = 0

    def next(self) -> Member | None:
        """The next file. Folders are left out. None at the end. Raises InvalidArchive."""
        while (info := self._next_header()) is not None and info.isdir():
            pass
        if info is None:
            return None
        is_regular = info.isreg() and not info.issparse()
        self._unread = info.size if is_regular else 0
        if info.size < 0:
            raise InvalidArchive(f"a header of the archive is damaged: a size of {info.size}")
        # A comparison with NaN is false.
        # The latest date of a member, in seconds since the epoch.
        date = int(info.mtime) if 0 <= info.mtime <= (2.0**40) else 0
        return Member(info.name, info.size, info.offset_data, date, is_regular)

    def read(self, count: int) -> bytes:
        """Up to `count` bytes of the current member, none at its end. Raises InvalidArchive."""
        wanted = min(count, self._unread)
        data = self._file.fill(wanted)
        if len(data) < wanted:
            raise InvalidArchive(f"the archive ends too early, after {self._file.tell()} bytes; copy the whole file")
        self._unread -= len(data)
        return data

    def _next_header(self) -> tarfile.TarInfo | None:
        self._file.seek(self._next)
        self._file.left = MAX_HEADER_BYTES
        try:
            # One for each member: it remembers all that it has read, and the values of all global headers.
            archive = tarfile.TarFile(fileobj=cast(IO[bytes], self._file), encoding="utf-8", errors="replace")
            info = next(iter(archive), None)
        except (InvalidArchive, OSError):
            raise
        # A hostile header also raises what tarfile does not name, such as RecursionError and ValueError.
        except Exception as error:
            self._refuse_cut()
            raise InvalidArchive(f"the archive is damaged before byte {self._file.tell()}: {error}") from error
        # To tarfile, a damaged header is the end of an archive, as are blocks of zeros.
        if info is None and any(self._file.last):
            self._refuse_cut()
            raise InvalidArchive(f"the archive is damaged at byte {self._file.tell() - BLOCK_BYTES}: wrong checksum")
        self._next = archive.offset
        return info

    def _refuse_cut(self) -> None:
        if len(self._file.last) % BLOCK_BYTES:
            raise InvalidArchive(f"the archive ends too early, after {self._file.tell()} bytes; copy the whole file")
