"""Finds the parts of registry files: pieces of work that a process reads alone.

A part is a file, a member of a tar archive, or a block of lines of a large file. A file that several processes can open
is only named. Everything else is a stream: it is decompressed and cut here.
"""

from __future__ import annotations

import os
import stat
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, cast

from doi_proxy.errors import ConfigurationError
from doi_proxy.system.files import STANDARD_INPUT, Gunzip, GzipLimits, open_regular

#: Bytes of a header, and of the padding of data.
TAR_BLOCK_BYTES: Final = tarfile.BLOCKSIZE
#: Limit of all headers of one member. Extended ones hold a path of 4,096 bytes and a few times. Python 3.11.7 reads one
#: in a time that grows with the square of its length (CVE-2024-6232).
MAX_HEADER_BYTES: Final = 16_384

#: Reads up to so many bytes, and none at the end.
Read = Callable[[int], bytes]


class InvalidArchive(ValueError):
    """The archive is damaged or incomplete. The message gives the reason."""


def is_tar(head: bytes) -> bool:
    """Whether data that begins with `head` is a tar archive."""
    try:
        tarfile.TarInfo.frombuf(head[:TAR_BLOCK_BYTES], "utf-8", "replace")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


class ArchiveReader:
    """Reads an archive forward. tarfile reads the headers by `tell`, `seek` and `read`, within their limit."""

    def __init__(self, read: Read, skip: Callable[[int], None] | None = None) -> None:
        """`skip` moves on by a number of bytes. Without it, the data of a member that is not wanted is read."""
        self._source, self._skip = read, skip or self._skip_by_reading
        self._archive: tarfile.TarFile | None = None
        self._position = 0
        #: Bytes of headers that may be read before the next member is found, and those of its data.
        self._room = self._unread = 0
        #: What was read last of a header.
        self._last = b""

    def next(self) -> tarfile.TarInfo | None:
        """The next member that is not a folder. None at the end. Raises InvalidArchive."""
        self._room = MAX_HEADER_BYTES
        try:
            info = self._next_header()
            while info is not None and info.isdir():
                self._room = MAX_HEADER_BYTES
                info = self._next_header()
        except (InvalidArchive, OSError):
            raise
        # A hostile header also raises what tarfile does not name, such as RecursionError and ValueError.
        except Exception as error:
            if len(self._last) % TAR_BLOCK_BYTES:
                raise self._cut() from error
            raise InvalidArchive(f"the archive is damaged before byte {self._position}: {error}") from error
        if info is not None and info.size < 0:
            raise InvalidArchive(f"a header of the archive is damaged: a size of {info.size}")
        self._unread = info.size if info is not None and info.isreg() and not info.issparse() else 0
        return info

    def _next_header(self) -> tarfile.TarInfo | None:
        if self._archive is None:
            self._archive = tarfile.TarFile(fileobj=cast(IO[bytes], self), encoding="utf-8", errors="replace")
            return self._archive.next()
        self.seek(self._archive.offset)
        try:
            # TarFile.next() takes a damaged header for the end.
            return tarfile.TarInfo.fromtarfile(self._archive)
        except tarfile.HeaderError:
            # A block of zeros, or the end of the file.
            if not any(self._last) and self._room == MAX_HEADER_BYTES - TAR_BLOCK_BYTES:
                return None
            raise

    def take(self, count: int) -> bytes:
        """Up to `count` bytes of the current member, none at its end. Raises InvalidArchive."""
        wanted = min(count, self._unread)
        data = self._fill(wanted)
        if len(data) < wanted:
            raise self._cut()
        self._unread -= len(data)
        return data

    def tell(self) -> int:
        """The position, in bytes from the beginning."""
        return self._position

    def seek(self, position: int) -> int:
        """Move forward."""
        if position < self._position:
            raise InvalidArchive(f"a header of the archive is damaged: it leads back to byte {position}")
        self._skip(position - self._position)
        self._position = position
        return position

    def read(self, count: int) -> bytes:
        """Read a part of a header."""
        if not 0 <= count <= self._room:
            limit = f"the limit, {MAX_HEADER_BYTES} bytes"
            raise InvalidArchive(f"the headers of a member of the archive are longer than {limit}")
        self._room -= count
        self._last = self._fill(count)
        return self._last

    def _fill(self, count: int) -> bytes:
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
                raise self._cut()
            count -= len(piece)

    def _cut(self) -> InvalidArchive:
        return InvalidArchive(f"the archive ends too early, after {self._position} bytes; copy the whole file")


#: The library that compresses. isal takes half the time of zlib. Without its extra, only tables are read.
library: Any = zlib
with suppress(ModuleNotFoundError):
    from isal import isal_zlib

    library = isal_zlib
#: Bytes that are read at a time.
PIECE_BYTES: Final = 1024 * 1024
#: Bytes by which a file is recognised.
HEAD_BYTES: Final = 65_536
#: JSON of one agency has up to 30 bytes for each compressed byte.
_LIMITS: Final = GzipLimits(ratio=400, free_bytes=64 * 1024 * 1024, piece_bytes=PIECE_BYTES)
#: The beginning alone is read.
_HEAD_LIMITS: Final = GzipLimits(piece_bytes=HEAD_BYTES)
#: A line of JSON Lines ends so. The first line of a document that is written over many lines does not.
_COMPLETE: Final = (b"}", b"]")
#: Data cannot be decompressed.
DamagedData: Final = cast("type[Exception]", library.error)


class UnreadablePart(ValueError):
    """Bytes cannot be read to their end. The message gives the reason."""


class OversizeRecord(ValueError):
    """A line or a document is longer than the limit. The message says which limit."""


class _Pieces:
    """Reads from pieces of any size."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = filter(None, pieces)
        self._rest = b""
        self._at = 0

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, none at the end."""
        if self._at >= len(self._rest):
            self._rest, self._at = next(self._pieces, b""), 0
        data = self._rest[self._at : self._at + count]
        self._at += len(data)
        return data


def open_stream(read: Read) -> tuple[bytes, Read]:
    """The first bytes of a stream, HEAD_BYTES or more, and what reads all of it, both decompressed if it is gzip data.

    Reading raises UnreadablePart.
    """
    head, pieces = _peek(iter(lambda: read(PIECE_BYTES), b""))
    if is_gzip(head):
        head, pieces = _peek(gunzip(pieces))
    return head, _Pieces(pieces).read


def _peek(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    head = b""
    while len(head) < HEAD_BYTES and (piece := next(pieces, b"")):
        head += piece
    return head, chain((head,), pieces)


def is_gzip(head: bytes) -> bool:
    """Whether data that begins with `head` is compressed by gzip."""
    # RFC 1952, section 2.3.1.
    return head.startswith(b"\x1f\x8b")


def decompress_head(head: bytes) -> bytes:
    """The beginning of what gzip data contains, from its own beginning. Empty if it is damaged."""
    try:
        return next(_open_gunzip(_HEAD_LIMITS).feed(head), b"")
    except UnreadablePart:
        return b""


def gunzip(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Decompress gzip data, also of several members, in pieces of PIECE_BYTES. Raises UnreadablePart."""
    return _open_gunzip(_LIMITS).read(pieces)


def _open_gunzip(limits: GzipLimits) -> Gunzip:
    return Gunzip(limits, lambda reason: UnreadablePart(f"the {reason}"), library)


def cut_blocks(pieces: Iterable[bytes], block_bytes: int, max_bytes: int) -> Iterator[bytes]:
    """Blocks of about `block_bytes` that end at the end of a line. Raises OversizeRecord past `max_bytes`.

    The same bytes are always cut into the same blocks, however they arrive.
    """
    waiting: list[bytes] = []
    size = 0
    is_document: bool | None = None
    for piece in pieces:
        if is_document is None and (end := piece.find(b"\n")) >= 0:
            is_document = _begins_document(b"".join((*waiting, piece[:end])))
        at = 0
        # The first end of a line after `block_bytes` bytes. What waits already has none there.
        while not is_document and (end := piece.find(b"\n", at + max(0, block_bytes - 1 - size))) >= 0:
            yield b"".join((*waiting, piece[at : end + 1]))
            waiting, size, at = [], 0, end + 1
        waiting.append(piece[at:])
        size += len(piece) - at
        if size > max_bytes:
            raise OversizeRecord(f"a line or document is longer than {max_bytes} bytes")
    if (block := b"".join(waiting)).strip():
        yield block


def _begins_document(first_line: bytes) -> bool:
    """Whether the file is one JSON document over many lines."""
    first = first_line.removeprefix(b"\xef\xbb\xbf").strip()
    return first.startswith((b"{", b"[")) and not first.endswith(_COMPLETE)


#: Files and members up to this size are read by one process. Those of the agencies have 5 to 10 MB.
MAX_PART_BYTES: Final = 32 * 1024 * 1024
#: The size of a block of a larger file, in bytes.
BLOCK_BYTES: Final = 8 * 1024 * 1024
#: Limit of a line, and of a document that is not lines, in bytes.
MAX_RECORD_BYTES: Final = 256 * 1024 * 1024
#: Folders below a folder that are searched.
_MAX_DEPTH: Final = 16
#: Endings of files that hold records, after ".gz" is removed. Other files of folders and archives are left out.
_RECORDS: Final = (".json", ".jsonl", ".ndjson", ".csv", ".tsv")
_ARCHIVES: Final = (".tar", ".tgz")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of work: bytes of a file, or the data itself. The name is unique in an import."""

    name: str
    #: The date of records without a date of their own, in seconds since the epoch.
    date: int
    #: Bytes of the files that are read when the part is done, for the progress bar.
    weight: int
    path: str = ""
    offset: int = 0
    length: int = 0
    data: bytes = b""
    #: The first line of the file, if the part is a later block of it.
    first_line: bytes = b""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is not read, and the reason. `is_failure` if it should have been."""

    name: str
    reason: str
    is_failure: bool = False


def find_parts(path: str, now: int) -> Iterator[Part | LeftOut]:
    """The parts of a file, a folder or standard input, in a fixed order.

    `now` is the date of records without one from a stream, in seconds since the epoch. Raises ConfigurationError if
    `path` does not exist.
    """
    if path == STANDARD_INPUT:
        yield from _parts_of_stream(path, sys.stdin.buffer.read, now, _Weight(lambda: 0))
        return
    try:
        is_folder = stat.S_ISDIR(Path(path).stat().st_mode)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from error
    for file in _walk(Path(path), _MAX_DEPTH) if is_folder else (Path(path),):
        if isinstance(file, LeftOut):
            yield file
        else:
            yield from _parts_of_file(file, now)


def list_source_files(path: str) -> list[tuple[str, int, int]]:
    """The files of a path with their sizes and times, to recognise the same import. Raises ConfigurationError."""
    files = _walk(Path(path), _MAX_DEPTH) if Path(path).is_dir() else (Path(path),)
    try:
        return [
            (str(file), found.st_size, found.st_mtime_ns)
            for file in files
            if isinstance(file, Path)
            for found in (file.stat(),)
        ]
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from error


def size_of_source(path: str) -> int | None:
    """The bytes of the files of a path, for the progress bar. None for a stream."""
    if path == STANDARD_INPUT or not (Path(path).is_dir() or Path(path).is_file()):
        return None
    return sum(size for _, size, _ in list_source_files(path))


def _walk(folder: Path, depth: int) -> Iterator[Path | LeftOut]:
    """The files of a folder with records, in the order of their names. Links are not followed."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield LeftOut(str(folder), f"cannot be read: {error.strerror or error}", is_failure=True)
        return
    for entry in entries:
        if entry.is_symlink():
            yield LeftOut(entry.path, "is a link; name the file itself")
        elif entry.is_dir(follow_symlinks=False):
            if depth:
                yield from _walk(Path(entry.path), depth - 1)
            else:
                yield LeftOut(entry.path, f"is more than {_MAX_DEPTH} folders deep")
        elif not entry.is_file(follow_symlinks=False) or not _holds_records(entry.name, (*_RECORDS, *_ARCHIVES)):
            yield LeftOut(entry.path, "is not a file of records")
        else:
            yield Path(entry.path)


def _holds_records(name: str, endings: tuple[str, ...]) -> bool:
    return name.lower().removesuffix(".gz").endswith(endings)


class _Weight:
    """The bytes that were read since the last part."""

    def __init__(self, position: Callable[[], int]) -> None:
        self._position = position
        self._before = 0

    def take(self) -> int:
        """The bytes since the last call."""
        before, self._before = self._before, self._position()
        return self._before - before


def _parts_of_file(path: Path, now: int) -> Iterator[Part | LeftOut]:
    try:
        with open_regular(path) as file:
            found = os.fstat(file.fileno())
            date = int(found.st_mtime)
            head = file.read(HEAD_BYTES)
            file.seek(0)
            if is_tar(head):
                archive = ArchiveReader(file.read, lambda count: _skip(file, count))
                yield from _parts_of_archive(str(path), archive, _Weight(file.tell), found.st_size)
                return
            is_archive = is_gzip(head) and is_tar(decompress_head(head))
            if found.st_size <= MAX_PART_BYTES and not is_archive:
                yield Part(str(path), date, found.st_size, str(path), 0, found.st_size)
                return
            yield from _parts_of_stream(str(path), file.read, min(date, now), _Weight(file.tell))
    except InvalidArchive as error:
        yield LeftOut(str(path), str(error), is_failure=True)
    except OSError as error:
        yield LeftOut(str(path), f"cannot be read to its end: {error.strerror or error}", is_failure=True)


def _skip(file: BinaryIO, count: int) -> None:
    file.seek(count, os.SEEK_CUR)


def _parts_of_archive(
    path: str, archive: ArchiveReader, weight: _Weight, file_bytes: int | None = None
) -> Iterator[Part | LeftOut]:
    """The members of an archive. If it is a file of `file_bytes`, processes read them from there.

    Raises InvalidArchive, and what reading raises.
    """
    while (member := archive.next()) is not None:
        name = f"{path}!{member.name}"
        # A later date, in seconds since the epoch, is not used. Nor is NaN: its comparison is false.
        date = int(member.mtime) if 0 <= member.mtime <= 2.0**40 else 0
        if not member.isreg() or member.issparse():
            yield LeftOut(name, "is a link or a special file")
        elif not _holds_records(member.name, _RECORDS):
            yield LeftOut(name, "is not a file of records")
        elif file_bytes is not None and member.offset_data + member.size > file_bytes:
            raise InvalidArchive("the archive ends too early; copy the whole file")
        elif member.size > MAX_PART_BYTES:
            yield from _parts_of_stream(name, archive.take, date, weight)
        elif file_bytes is None:
            yield Part(name, date, weight.take(), data=archive.take(member.size))
        else:
            yield Part(name, date, weight.take(), path, member.offset_data, member.size)


def _parts_of_stream(name: str, read: Read, date: int, weight: _Weight) -> Iterator[Part | LeftOut]:
    """The parts of bytes that only this process can read: an archive or blocks, compressed or not."""
    try:
        head, read = open_stream(read)
        if is_tar(head):
            yield from _parts_of_archive(name, ArchiveReader(read), weight)
            return
        first_line = b""
        pieces = iter(lambda: read(PIECE_BYTES), b"")
        for number, block in enumerate(cut_blocks(pieces, BLOCK_BYTES, MAX_RECORD_BYTES)):
            yield Part(f"{name}#{number}", date, weight.take(), data=block, first_line=first_line)
            first_line = first_line or block[: block.find(b"\n") + 1][:HEAD_BYTES]
    except (InvalidArchive, OversizeRecord, UnreadablePart, OSError) as error:
        yield LeftOut(name, str(error), is_failure=True)
