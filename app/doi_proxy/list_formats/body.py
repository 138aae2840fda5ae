"""A list in the body of a request, of `/api/resolve` or `/api/parse`: read ahead, decompressed, and cut into items."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from doi_proxy.endpoints.fair_lock import HoldTurn
from doi_proxy.errors import RequestTooLarge, UnreadableList, UnsupportedBody
from doi_proxy.list_formats.docx import MAX_DOCUMENT_BYTES, read_docx
from doi_proxy.list_formats.encodings import Utf8Stream
from doi_proxy.list_formats.entry_search import expand
from doi_proxy.list_formats.formats import BY_MEDIA_TYPE, FORMATS, GuessedReader, ListFormat
from doi_proxy.list_formats.lines import MAX_LINE_BYTES, Item, ListReader, open_gunzip
from doi_proxy.list_formats.reference_names import locate_references, read_reference_items
from doi_proxy.web import media_types
from doi_proxy.web.request import media_type_of
from doi_proxy.web.responses import Receive

#: Bytes that a reader cuts into items at a time. As many lines without an item take 0.5 ms of processor time.
_PIECE_BYTES: Final = 1_024
#: Characters of a text that are encoded in one turn of the event loop.
_BLOCK_CHARACTERS: Final = 32_768
#: "" is a body without a charset. US-ASCII is a part of UTF-8.
_CHARSETS: Final = frozenset({"", "utf-8", "utf8", "us-ascii"})
_MAX_SHOWN_CHARACTERS: Final = 80
#: A body that arrives faster has no speed that can be measured, in seconds.
_SHORTEST_WAIT: Final = 0.001


@dataclass(frozen=True, slots=True)
class ListLimits:
    """The limits of one list."""

    names: int
    line_bytes: int = MAX_LINE_BYTES
    #: Decompressed bytes for each compressed byte. Lists of names have up to about 20.
    ratio: float = 100.0
    #: Bytes that are received before they are needed. A client that reads no answer until it has sent its whole list
    #: can send about this much: 100,000 names.
    read_ahead_bytes: int = 4 * 1024 * 1024
    #: Decompressed bytes.
    total_bytes: float = inf
    #: Lines without an item, and as many more for each item. Most are empty, or comments.
    empty_lines: int = 100_000
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
_SHOWN: Final = 80

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
    """Read the format of a body, whose media type is one of `supported`. Raises UnsupportedBody.

    `columns` are the column or member with the names, and the one that rows repeat.
    """
    media_type = read_content_type(content_type, supported)
    encoding = (content_encoding or "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise UnsupportedBody(f"The body has Content-Encoding: {encoding[:_SHOWN]}; send it as it is, or as gzip.")
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
        return self._received / max(self.waited, _SHORTEST_WAIT)

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
    if BY_MEDIA_TYPE[form.media_type].is_document:
        async for item in _read_document(body, form, limits, hold_turn):
            yield item
        return
    reader = _open_reader(form, limits)
    reader.keeps_entries = form.keeps_entries
    counter, utf8 = ListCounter(limits), Utf8Stream()
    async for large in decompress_body(body, limits, is_gzip=form.is_gzip):
        for piece in _cut(utf8.feed(large)):
            for group in expand(reader.feed(piece)):
                for item in group:
                    counter.count_item()
                    yield item
                # Other requests come first: a piece can have many lines without a name, and an entry a long search.
                await asyncio.sleep(0)
            counter.compare_lines(reader.lines)
    for items in (reader.feed(utf8.end()), reader.end()):
        for group in expand(items):
            for item in group:
                counter.count_item()
                yield item
            await asyncio.sleep(0)


async def read_exported_entries(text: str, form: ListFormat, most: int, hold_turn: HoldTurn) -> AsyncIterator[Item]:
    """The items of a text in a format, `most` at most, each with the entry that it is a part of.

    Raises UnreadableList and RequestTooLarge.
    """
    body = BodyFormat(form.media_types[0], False, None, keeps_entries=True)
    async for item in read_list_body(_encode(text), body, ListLimits(names=most), hold_turn):
        yield item


async def _encode(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), _BLOCK_CHARACTERS):
        yield text[start : start + _BLOCK_CHARACTERS].encode("utf-8", "replace")


def _open_reader(form: BodyFormat, limits: ListLimits) -> ListReader:
    """The reader of a list. A list that is sent as text can be of any format, as in a file."""

    def open_format(found: ListFormat) -> ListReader:
        return found.open(limits.line_bytes, form.column, form.echo)

    if form.media_type == media_types.TEXT:
        return GuessedReader(open_format, decides_early=True)
    return open_format(BY_MEDIA_TYPE[form.media_type])


async def _read_document(
    body: AsyncIterator[bytes], form: BodyFormat, limits: ListLimits, hold_turn: HoldTurn
) -> AsyncIterator[Item]:
    data, counter = bytearray(), ListCounter(limits)
    async for piece in decompress_body(body, limits, is_gzip=form.is_gzip):
        data += piece
        if len(data) > MAX_DOCUMENT_BYTES:
            raise RequestTooLarge(f"The document is larger than {MAX_DOCUMENT_BYTES} bytes; send its text.")
    text = await read_docx(bytes(data), hold_turn)
    async for item in read_reference_items(text, await locate_references(text, is_document=True), hold_turn):
        counter.count_item()
        yield item


async def decompress_body(body: AsyncIterator[bytes], limits: ListLimits, *, is_gzip: bool) -> AsyncIterator[bytes]:
    """The bytes of a body, decompressed. Raises UnreadableList and RequestTooLarge."""
    gunzip = open_gunzip(limits.ratio) if is_gzip else None
    counter = ListCounter(limits)
    async for received in body:
        for block in _cut(received):
            for piece in (block,) if gunzip is None else gunzip.feed(block):
                counter.count_bytes(piece)
                yield piece
            # A block of gzip can have many members without data.
            await asyncio.sleep(0)
    if gunzip is not None:
        gunzip.end()


class ListCounter:
    """Counts what the limits of a list bound. Raises RequestTooLarge."""

    def __init__(self, limits: ListLimits) -> None:
        self._limits = limits
        self._bytes = self._names = 0

    def count_bytes(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > self._limits.total_bytes:
            raise RequestTooLarge(f"The list is larger than {self._limits.total_bytes} bytes; send several requests.")

    def count_item(self) -> None:
        self._names += 1
        if self._names > self._limits.names:
            raise RequestTooLarge(
                f"The list has more than {self._limits.names} names; send the rest in another request."
            )

    def compare_lines(self, lines: int) -> None:
        """Compare the lines that were read with the items in them. Raises UnreadableList."""
        limits = self._limits
        if lines - self._names > limits.empty_lines + limits.empty_lines_an_item * self._names:
            raise UnreadableList(
                f"The list has {self._names} names in its first {lines} lines; remove empty lines and comments."
            )


def _cut(data: bytes) -> Iterator[bytes]:
    return (data[start : start + _PIECE_BYTES] for start in range(0, len(data), _PIECE_BYTES))


def read_content_type(content_type: str | None, supported: Iterable[str]) -> str:
    """The media type of a body, which is one of `supported`, by its usual name.

    Raises UnsupportedBody for any other media type, and for a charset other than UTF-8.
    """
    types, sent = tuple(supported), media_type_of(content_type)
    media_type = BY_MEDIA_TYPE[sent].media_types[0] if sent in BY_MEDIA_TYPE else sent
    if media_type not in types:
        shown = sent[:_MAX_SHOWN_CHARACTERS] or "without a media type"
        raise UnsupportedBody(f"The body is {shown}; send it as {', '.join(types[:-1])} or {types[-1]}.")
    charset = (content_type or "").lower().partition("charset=")[2].partition(";")[0].strip(' "')
    if charset not in _CHARSETS:
        raise UnsupportedBody(f"The body is in the encoding {charset[:_MAX_SHOWN_CHARACTERS]}; send it in UTF-8.")
    return media_type
