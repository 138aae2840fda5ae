"""A list in the body of a request, or in a file of a command: read ahead, decompressed, and cut into items."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Final

from doi_proxy.errors import ConfigurationError, RequestTooLarge, UnreadableList, UnsupportedBody
from doi_proxy.list_formats import entries, formats, lines
from doi_proxy.list_formats.docx import MAX_DOCUMENT_BYTES, read_docx
from doi_proxy.list_formats.entries import Item, ReadItem, expand
from doi_proxy.list_formats.extraction import locate_references, read_reference_items
from doi_proxy.list_formats.fair_lock import HoldTurn
from doi_proxy.list_formats.formats import (
    BY_MEDIA_TYPE,
    FORMATS,
    HEAD_CHARACTERS,
    ListFormat,
    ReferencesReader,
    RunningTextReader,
    format_of_head,
)
from doi_proxy.list_formats.lines import MAX_LINE_BYTES, ListReader, Utf8Stream, open_gunzip
from doi_proxy.system.files import STANDARD_INPUT, open_input
from doi_proxy.system.options import MAX_SHOWN
from doi_proxy.web import media_types
from doi_proxy.web.request import media_type_of
from doi_proxy.web.responses import Receive

_MAX_SHOWN_CHARACTERS: Final = 80
#: Decompressed bytes for each compressed byte. Lists of names have up to about 20.
MAX_RATIO: Final = 100.0


@dataclass(frozen=True, slots=True)
class ListLimits:
    """The limits of one list."""

    names: float
    line_bytes: int = MAX_LINE_BYTES
    ratio: float = MAX_RATIO
    #: Bytes that are received before they are needed. A client that reads no answer until it has sent its whole list
    #: can send about this much: 100,000 names.
    read_ahead_bytes: int = 4 * 1024 * 1024
    #: Decompressed bytes.
    total_bytes: float = inf
    #: Lines without an item, and as many more for each item. Most are empty, or comments.
    empty_lines: float = 100_000
    empty_lines_an_item: int = 100


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """What the headers and the query of a request say about its body."""

    media_type: str
    is_gzip: bool
    column: str | None
    #: The column or member that rows repeat.
    echo: str | None = None
    #: Whether the items have the reference that they are a part of.
    keeps_entries: bool = False


#: The usual media type of each format.
LIST_TYPES: Final = tuple(form.media_types[0] for form in FORMATS)

#: The body of a request with a list, in the OpenAPI document.
LIST_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        # Some generators of clients know only the first.
        media_types.JSON: {
            "schema": {"type": "array", "items": {"type": "string"}},
            "example": ["10.1000/182", "10.1000/none"],
        },
        media_types.TEXT: {"schema": {"type": "string"}, "example": "10.1000/182\n10.1000/none\n"},
        media_types.CSV: {"schema": {"type": "string"}, "example": "title,doi\nDOI Handbook,10.1000/182\n"},
        media_types.NDJSON: {"schema": {"type": "string"}, "example": '"10.1000/182"\n{"doi": "10.1000/none"}\n'},
        media_types.BIBTEX: {"schema": {"type": "string"}, "example": "@book{handbook,\n  doi = {10.1000/182}\n}\n"},
        media_types.RIS: {"schema": {"type": "string"}, "example": "TY  - BOOK\nDO  - 10.1000/182\nER  - \n"},
    },
}


def read_body_format(
    content_type: str | None,
    content_encoding: str | None,
    columns: tuple[str | None, str | None] = (None, None),
    supported: Iterable[str] = LIST_TYPES,
) -> BodyFormat:
    """Read the format of a body, whose media type is one of `supported`. Raises UnsupportedBody, also for a charset.

    `columns` are the column or member with the names, and the one that rows repeat.
    """
    types, sent = tuple(supported), media_type_of(content_type)
    media_type = BY_MEDIA_TYPE[sent].media_types[0] if sent in BY_MEDIA_TYPE else sent
    if media_type not in types:
        shown = sent[:_MAX_SHOWN_CHARACTERS] or "without a media type"
        raise UnsupportedBody(f"The body is {shown}; send it as {', '.join(types[:-1])} or {types[-1]}.")
    charset = (content_type or "").lower().partition("charset=")[2].partition(";")[0].strip(' "')
    # "" is a body without a charset. US-ASCII is a part of UTF-8.
    if charset not in {"", "utf-8", "utf8", "us-ascii"}:
        raise UnsupportedBody(f"The body is in the encoding {charset[:_MAX_SHOWN_CHARACTERS]}; send it in UTF-8.")
    encoding = (content_encoding or "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise UnsupportedBody(
            f"The body has Content-Encoding: {encoding[:_MAX_SHOWN_CHARACTERS]}; send it as it is, or as gzip."
        )
    return BodyFormat(media_type, encoding != "identity", *columns)


class BodyBuffer:
    """The pieces of a body that have been received and are not read yet, about `max_bytes` at most.

    A client that sends its whole list before it reads the answer needs room for the list here, or for the answer in the
    buffers of the connection.
    """

    def __init__(self, max_bytes: int, timer: Callable[[], float] = time.monotonic) -> None:
        """`timer` is monotonic, in seconds."""
        self._max_bytes = max_bytes
        self._timer = timer
        self._began = timer()
        self._received = 0
        #: Seconds of finished waits for the client, and when the one under way began.
        self._waited = 0.0
        self._waits_since: float | None = None
        self._pieces: deque[bytes] = deque()
        self._bytes = 0
        self._is_complete = False
        self._changed = asyncio.Condition()

    async def fill(self, receive: Receive) -> None:
        """Receive the body. Returns when the client has left."""
        while True:
            self._waits_since = self._timer()
            message = await receive()
            self._waited, self._waits_since = self.waited, None
            if message["type"] == "http.disconnect":
                return
            async with self._changed:
                await self._changed.wait_for(lambda: self._bytes < self._max_bytes)
                piece = message.get("body", b"")
                if piece:
                    self._pieces.append(piece)
                    self._bytes += len(piece)
                    self._received += len(piece)
                self._is_complete = not message.get("more_body", False)
                self._changed.notify_all()

    @property
    def received(self) -> int:
        """The bytes that were received."""
        return self._received

    @property
    def age(self) -> float:
        """Seconds since its beginning."""
        return self._timer() - self._began

    @property
    def waited(self) -> float:
        """Seconds that this service has waited for the client. A time in which the body was not read does not count."""
        return self._waited + (0.0 if self._waits_since is None else self._timer() - self._waits_since)

    @property
    def is_awaited(self) -> bool:
        """Whether this service waits for the rest of the body."""
        return self._waits_since is not None and not self._is_complete

    @property
    def speed(self) -> float:
        """Bytes of the body for each second of `waited`."""
        # A body that arrives faster has no speed that can be measured, in seconds.
        return self._received / max(self.waited, 0.001)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The pieces in their order."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._pieces or self._is_complete)
                if not self._pieces:
                    return
                piece = self._pieces.popleft()
                self._bytes -= len(piece)
                self._changed.notify_all()
            yield piece


async def read_list_body(
    body: AsyncIterator[bytes], form: BodyFormat, limits: ListLimits, hold_turn: HoldTurn
) -> AsyncIterator[Item]:
    """The items of a body as they arrive, those of a document when it is complete.

    `hold_turn` is of a lock of all texts: see find_names_of. Raises UnreadableList and RequestTooLarge.
    """

    def open_format(found: ListFormat) -> ListReader:
        return found.open(limits.line_bytes, form.column, form.echo)

    found = BY_MEDIA_TYPE[form.media_type]
    if found.is_document:
        groups = _read_document(decompress_body(body, is_gzip=form.is_gzip), hold_turn)
    else:
        # A list that is sent as text can be of any format, as in a file.
        chosen = None if found is formats.TEXT else found
        parser = ListParser(open_format, chosen, limits, is_gzip=form.is_gzip, keeps_entries=form.keeps_entries)
        groups = _parse(body, parser)
    names = 0
    async for group in groups:
        for item in group:
            names += 1
            require_few(names, limits)
            yield item


async def _parse(pieces: AsyncIterator[bytes], parser: ListParser) -> AsyncGenerator[list[Item]]:
    """The items of a list in groups. Other work goes on meanwhile."""
    async for piece in pieces:
        # Bytes that a reader cuts into items at a time. As many lines without an item take 0.5 ms of processor time.
        for start in range(0, len(piece), 1_024):
            for group in parser.feed(piece[start : start + 1_024]):
                yield group
                # Other requests come first: a piece can have many lines without a name, and an entry a long search.
                await asyncio.sleep(0)
            # A piece of gzip can have many members without data.
            await asyncio.sleep(0)
    for group in parser.end():
        yield group
        await asyncio.sleep(0)


async def read_exported_entries(text: str, form: ListFormat, most: int, hold_turn: HoldTurn) -> AsyncIterator[Item]:
    """The items of a text of a format, `most` at most, each with the entry that it is a part of.

    Raises UnreadableList and RequestTooLarge.
    """
    body = BodyFormat(form.media_types[0], False, None, keeps_entries=True)
    async for item in read_list_body(
        cut_pieces(text.encode("utf-8", "replace")), body, ListLimits(names=most), hold_turn
    ):
        yield item


async def cut_pieces(data: bytes) -> AsyncIterator[bytes]:
    """Data in pieces that are read in one turn of the event loop each."""
    for start in range(0, len(data), 32_768):
        yield data[start : start + 32_768]
        await asyncio.sleep(0)


async def _read_document(
    pieces: AsyncIterator[bytes], hold_turn: HoldTurn, *, extracts: bool = False
) -> AsyncGenerator[list[Item]]:
    """The references of a document, or every name in it."""
    data = bytearray()
    async for piece in pieces:
        data += piece
        if len(data) > MAX_DOCUMENT_BYTES:
            raise RequestTooLarge(
                f"The document is larger than {MAX_DOCUMENT_BYTES} bytes; save it as text, or without its pictures."
            )
    text = await read_docx(bytes(data), hold_turn)
    if extracts:
        parser = ListParser(lambda _: RunningTextReader(), formats.TEXT, ListLimits(names=inf))
        async for group in _parse(cut_pieces(text.encode("utf-8", "replace")), parser):
            yield group
        return
    async for item in read_reference_items(text, await locate_references(text, is_document=True), hold_turn):
        yield [item]


async def decompress_body(body: AsyncIterator[bytes], *, is_gzip: bool) -> AsyncIterator[bytes]:
    """The bytes of a body, decompressed. Raises UnreadableList."""
    gunzip = open_gunzip(MAX_RATIO) if is_gzip else None
    async for received in body:
        for start in range(0, len(received), 1_024):
            block = received[start : start + 1_024]
            for piece in (block,) if gunzip is None else gunzip.feed(block):
                yield piece
            # A block of gzip can have many members without data.
            await asyncio.sleep(0)
    if gunzip is not None:
        gunzip.end()


def require_few(names: int, limits: ListLimits) -> None:
    """Raise RequestTooLarge if a list has too many names."""
    if names > limits.names:
        raise RequestTooLarge(f"The list has more than {limits.names} names; send the rest in another request.")


class ListParser:
    """Turns the bytes of one list into items, in groups.

    Without a `form`, the beginning of the list decides: HEAD_CHARACTERS bytes, or if it `decides_early` what has
    arrived when its first line ends, since a list may come slowly.
    """

    def __init__(
        self,
        open_format: Callable[[ListFormat], ListReader],
        form: ListFormat | None,
        limits: ListLimits,
        *,
        is_gzip: bool = False,
        keeps_entries: bool = False,
        decides_early: bool = True,
    ) -> None:
        #: What was read: entries, of which each has a row or more. An entry of a text is one name.
        self.entries = 0
        self._open_format = open_format
        self._limits = limits
        self._keeps_entries = keeps_entries
        self._decides_early = decides_early
        self._bytes = self._names = 0
        self._utf8 = Utf8Stream()
        self._gunzip = open_gunzip(limits.ratio) if is_gzip else None
        self._head = b""
        self._reader = None if form is None else self._open(form)

    @property
    def column(self) -> str:
        """See ListReader."""
        return "" if self._reader is None else self._reader.column

    def feed(self, data: bytes) -> Iterator[list[Item]]:
        """The items of a piece. Raises UnreadableList and RequestTooLarge."""
        limits = self._limits
        for piece in (data,) if self._gunzip is None else self._gunzip.feed(data):
            self._bytes += len(piece)
            if self._bytes > limits.total_bytes:
                raise RequestTooLarge(f"The list is larger than {limits.total_bytes} bytes; send several requests.")
            yield from self._read(self._utf8.feed(piece))
            read = 0 if self._reader is None else self._reader.lines
            if read - self._names > limits.empty_lines + limits.empty_lines_an_item * self._names:
                raise UnreadableList(
                    f"The list has {self._names} names in its first {read} lines; remove empty lines and comments."
                )

    def end(self) -> Iterator[list[Item]]:
        """The last items. Raises UnreadableList if the list is incomplete."""
        if self._gunzip is not None:
            self._gunzip.end()
        yield from self._read(self._utf8.end(), is_whole=True)
        if self._reader is not None:
            yield from self._expand(self._reader.end())

    def _read(self, data: bytes, *, is_whole: bool = False) -> Iterator[list[Item]]:
        if self._reader is None:
            self._head = data = self._head + data
            is_enough = len(data) >= HEAD_CHARACTERS or (self._decides_early and b"\n" in data.lstrip())
            if not is_enough and not is_whole:
                return
            head = data[:HEAD_CHARACTERS].decode("utf-8", "replace").lstrip("\ufeff")
            self._reader, self._head = self._open(format_of_head(head) or formats.TEXT), b""
        yield from self._expand(self._reader.feed(data))

    def _open(self, form: ListFormat) -> ListReader:
        # The reference of a name in a text is its paragraph.
        is_text = self._keeps_entries and form is formats.TEXT
        reader = ReferencesReader(self._limits.line_bytes) if is_text else self._open_format(form)
        reader.keeps_entries = self._keeps_entries
        return reader

    def _expand(self, items: list[ReadItem]) -> Iterator[list[Item]]:
        # What stands for nothing else is a further field of its entry.
        is_text = isinstance(self._reader, ReferencesReader)
        if not is_text:
            self.entries += sum(not isinstance(item, entries.ListEntry) or item.title is not None for item in items)
        for group in expand(items):
            self.entries += len(group) * is_text
            self._names += len(group)
            yield group


#: Bytes that can be written to a ready pipe without blocking (POSIX.1-2017, PIPE_BUF).
_PIPE_BYTES: Final = 4_096
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

    def open_parser(self) -> ListParser:
        """A parser of the list, which is the operator's own file: its bytes and empty lines are not limited."""

        def open_format(form: ListFormat) -> ListReader:
            return RunningTextReader() if self.extracts else form.open(lines.MAX_LINE_BYTES, self.column, None)

        return ListParser(
            open_format,
            formats.TEXT if self.extracts else self.format,
            ListLimits(names=inf, ratio=inf, empty_lines=inf),
            is_gzip=has_gzip_name(self.path),
            keeps_entries=self.keeps_entries,
            decides_early=self.path == STANDARD_INPUT,
        )


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


def read_items(source: ListSource) -> Iterator[entries.Item]:
    """The items of a list. Blocks on a slow pipe. Raises ConfigurationError."""
    parser = source.open_parser()
    try:
        with _open(source.path) as fd:
            while data := _read(source.path, fd):
                for items in parser.feed(data):
                    yield from items
        for items in parser.end():
            yield from items
    except UnreadableList as error:
        raise ConfigurationError(f"{source.path}: {error.message}") from error


async def stream_items(
    source: ListSource, stop: asyncio.Event, parser: ListParser
) -> AsyncGenerator[list[entries.Item]]:
    """The items of a list in groups, as they arrive, until its end or `stop`. Raises ConfigurationError.

    `parser` is a new one of the list. It says afterwards what was read.
    """
    pieces = _read_pieces(source, stop)
    if source.is_document:
        groups = _read_document(pieces, nullcontext, extracts=source.extracts)
    else:
        groups = _parse(pieces, parser)
    try:
        async for group in groups:
            if stop.is_set():
                return
            yield group
    except (UnreadableList, RequestTooLarge) as error:
        if not stop.is_set():
            raise ConfigurationError(f"{source.path}: {error.message}") from error


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
