"""Reads lists of names from files and standard input, without blocking other work on a slow pipe."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from doi_proxy.errors import ConfigurationError, UnreadableList
from doi_proxy.list_formats import formats, lines
from doi_proxy.list_formats.docx import MAX_DOCUMENT_BYTES, read_docx
from doi_proxy.list_formats.encodings import Utf8Stream
from doi_proxy.list_formats.entry_search import expand
from doi_proxy.list_formats.reference_names import locate_references, read_reference_items
from doi_proxy.list_formats.running_text import RunningTextReader
from doi_proxy.system.files import open_input
from doi_proxy.system.redaction import MAX_SHOWN
from doi_proxy.system.standard_streams import STANDARD_INPUT

#: Bytes that can be written to a ready pipe without blocking (POSIX.1-2017, PIPE_BUF).
_PIPE_BYTES: Final = 4_096
#: References of a document in a group.
_GROUP: Final = 64
#: The end of the name of a compressed file.
_GZIP_SUFFIX: Final = ".gz"


@dataclass(frozen=True, slots=True)
class ListSource:
    """A list: its path, or `-`, and how it is read."""

    path: str
    #: The format. If it is None, the name of the file decides, or the beginning of a file with another name.
    form: str | None = None
    #: The column of CSV, or the member of JSON objects.
    column: str | None = None
    #: Limit of a line, in bytes. A longer line is unreadable.
    max_line_bytes: int = lines.MAX_LINE_BYTES
    #: Whether the items have the reference that they are a part of.
    keeps_entries: bool = False
    #: Whether it is running text, of which every name is an item.
    extracts: bool = False

    @property
    def format(self) -> formats.ListFormat | None:
        """The format of the list. None if its beginning decides."""
        if self.form is not None:
            return formats.BY_NAME[self.form]
        return formats.format_of_name(self.path.lower().removesuffix(_GZIP_SUFFIX)) or (
            formats.BY_NAME["csv"] if self.column else None
        )

    @property
    def is_document(self) -> bool:
        """Whether it is a document, which is read as a whole."""
        return self.format is not None and self.format.is_document


def has_gzip_name(path: str) -> bool:
    """Whether the name says that the file is compressed with gzip."""
    return path.lower().endswith(_GZIP_SUFFIX)


def exists(path: str) -> bool:
    """Whether there is a file or folder of this name. A text that is too long for a path names none."""
    try:
        return Path(path).exists()
    except OSError:
        return False


def require_files(paths: Sequence[str]) -> None:
    """Raise ConfigurationError if a file does not exist, before anything is read."""
    for path in paths:
        if path == STANDARD_INPUT:
            continue
        if not path:
            raise ConfigurationError("an argument is empty; name a DOI or a file, or - for standard input")
        shown = path[:MAX_SHOWN]
        if not exists(path):
            raise ConfigurationError(f"{shown}: this is neither a file nor a DOI name; check the path or the name")
        if Path(path).is_dir():
            raise ConfigurationError(f"{shown}: this is a folder; name a file in it")


class ListParser:
    """Turns the bytes of one list into items."""

    def __init__(self, source: ListSource) -> None:
        self._source = source
        #: What was read: entries, of which each has a row or more. An entry of a text is one name.
        self.entries = 0
        self._reader: lines.ListReader = self._choose_reader()
        self._reader.keeps_entries = source.keeps_entries
        self._utf8 = Utf8Stream()
        # The list is the operator's own file, so the ratio is not limited.
        self._gunzip = lines.open_gunzip(inf) if has_gzip_name(source.path) else None

    def feed(self, data: bytes) -> Iterator[list[lines.Item]]:
        """The items of a piece, in groups. Raises ConfigurationError if the list is unreadable."""
        try:
            for piece in (data,) if self._gunzip is None else self._gunzip.feed(data):
                yield from expand(self._count(self._reader.feed(self._utf8.feed(piece))))
        except UnreadableList as error:
            raise self._failure(error) from error

    def end(self) -> Iterator[list[lines.Item]]:
        """The last items. Raises ConfigurationError if the list is incomplete."""
        try:
            if self._gunzip is not None:
                self._gunzip.end()
            yield from expand(self._count(self._reader.feed(self._utf8.end())))
            yield from expand(self._count(self._reader.end()))
        except UnreadableList as error:
            raise self._failure(error) from error

    @property
    def column(self) -> str:
        """See ListReader."""
        return self._reader.column

    def _count(self, items: list[lines.ReadItem]) -> list[lines.ReadItem]:
        # What stands for nothing else is a further field of its entry.
        self.entries += sum(not isinstance(item, lines.SearchedEntry) or item.without is not None for item in items)
        return items

    def _choose_reader(self) -> lines.ListReader:
        if self._source.extracts:
            return RunningTextReader()
        if self._source.format is not None:
            return self._open(self._source.format)
        return formats.GuessedReader(self._open, decides_early=self._source.path == STANDARD_INPUT)

    def _open(self, form: formats.ListFormat) -> lines.ListReader:
        return form.open(self._source.max_line_bytes, self._source.column, None)

    def _failure(self, error: UnreadableList) -> ConfigurationError:
        return ConfigurationError(f"{self._source.path}: {error.message}")


def read_items(source: ListSource) -> Iterator[lines.Item]:
    """The items of a list. Blocks on a slow pipe. Raises ConfigurationError."""
    parser = ListParser(source)
    with _open(source.path) as fd:
        while data := _read(source.path, fd):
            for items in parser.feed(data):
                yield from items
    for items in parser.end():
        yield from items


async def stream_items(
    source: ListSource, stop: asyncio.Event, parser: ListParser | None = None
) -> AsyncGenerator[list[lines.Item]]:
    """The items of a list in groups, as they arrive, until its end or `stop`. Raises ConfigurationError.

    A caller that passes a new `parser` of the list can ask it afterwards what was read.
    """
    if source.is_document:
        async for items in _stream_document(source, stop):
            yield items
        return
    parser = parser or ListParser(source)
    async for data in _read_pieces(source, stop):
        for items in parser.feed(data):
            yield items
    if not stop.is_set():
        for items in parser.end():
            yield items


async def _stream_document(source: ListSource, stop: asyncio.Event) -> AsyncGenerator[list[lines.Item]]:
    """The references of a document, or every name in it. Raises ConfigurationError."""
    data = bytearray()
    async for piece in _read_pieces(source, stop):
        data += piece
        if len(data) > MAX_DOCUMENT_BYTES:
            raise ConfigurationError(
                f"{source.path}: the document has more than {MAX_DOCUMENT_BYTES} bytes; save it as text, or without "
                "its pictures"
            )
    if stop.is_set():
        return
    try:
        text = await read_docx(bytes(data), nullcontext)
    except UnreadableList as error:
        raise ConfigurationError(f"{source.path}: {error.message}") from error
    if source.extracts:
        reader = RunningTextReader()
        for block in (text.encode("utf-8", "replace"), None):
            for items in expand(reader.end() if block is None else reader.feed(block)):
                yield items
        return
    group: list[lines.Item] = []
    async for item in read_reference_items(text, await locate_references(text, is_document=True), nullcontext):
        group.append(item)
        if len(group) == _GROUP:
            yield group
            group = []
    yield group


async def _read_pieces(source: ListSource, stop: asyncio.Event) -> AsyncGenerator[bytes]:
    """The bytes of a list as they arrive, until its end or `stop`."""
    with _open(source.path) as fd:
        is_regular = stat.S_ISREG(os.fstat(fd).st_mode)
        while True:
            if not is_regular:
                await wait_for_input(fd, stop)
            if stop.is_set() or not (data := _read(source.path, fd)):
                return
            yield data


async def write_all(fd: int, data: bytes) -> None:
    """Write bytes to a file or a pipe. Raises OSError, BrokenPipeError if the reader of a pipe has left.

    Cancelled, it has written whole lines to a pipe, except of a line that is longer than _PIPE_BYTES.
    """
    is_regular = stat.S_ISREG(os.fstat(fd).st_mode)
    view, loop = memoryview(data), asyncio.get_running_loop()
    while view:
        if not is_regular:
            await _wait_for(loop.add_writer, loop.remove_writer, fd)
        view = view[os.write(fd, view if is_regular else _take_lines(view)) :]


def _take_lines(view: memoryview) -> memoryview:
    """The lines at the beginning that a ready pipe takes whole, or what it takes of a longer line."""
    most = view[:_PIPE_BYTES]
    return most if len(view) <= _PIPE_BYTES else most[: bytes(most).rfind(b"\n") + 1 or _PIPE_BYTES]


@contextmanager
def _open(path: str) -> Iterator[int]:
    """The file descriptor of a list while the body runs."""
    if path == STANDARD_INPUT:
        yield sys.stdin.fileno()
        return
    try:
        fd = open_input(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _read(path: str, fd: int) -> bytes:
    try:
        return os.read(fd, lines.BLOCK_BYTES)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{path}: cannot be read to its end: {error.strerror or error}")


async def wait_for_input(fd: int, stop: asyncio.Event | None = None) -> None:
    """Wait until a descriptor can be read, or until `stop`."""
    loop = asyncio.get_running_loop()
    await _wait_for(loop.add_reader, loop.remove_reader, fd, stop)


async def _wait_for(
    add: Callable[..., None], remove: Callable[[int], object], fd: int, stop: asyncio.Event | None = None
) -> None:
    """Wait until a descriptor is ready, or until `stop`."""
    ready = asyncio.Event()
    try:
        add(fd, ready.set)
    except PermissionError:
        return  # epoll refuses it: it is always ready, such as /dev/null
    events = [asyncio.ensure_future(event.wait()) for event in (ready, stop) if event is not None]
    try:
        await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for event in events:
            event.cancel()
        remove(fd)
