"""The names in running text, each with its position, and the references of a text with their names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from doi_names.derived import derive
from doi_names.find_names import BLOCK_CHARACTERS, MAX_NAME_CHARACTERS, FoundName, NameFinder, find_names
from doi_proxy.errors import RequestTooLarge, UnreadableList
from doi_proxy.list_formats import entries, lines
from doi_proxy.list_formats.fair_lock import HoldTurn
from doi_proxy.list_formats.reference_list import ReferencePlaces, find_references
from doi_proxy.web import media_types

#: Media types of texts. Their formats are not parsed: a name is found wherever it stands.
TEXT_TYPES: Final = (
    media_types.TEXT,
    media_types.HTML,
    "text/markdown",
    media_types.BIBTEX,
    media_types.RIS,
    media_types.CSV,
)

#: The bytes of a text in JSON, which is read as a whole. Decoding takes 1 ms.
MAX_JSON_BYTES: Final = 1024 * 1024
#: The members of a row about a name in a text, besides its verdict.
POSITION_FIELDS: Final = ("text", "start", "end", "confidence", "rule")


class _TextBody(msgspec.Struct):
    text: str


async def decode_json(pieces: AsyncIterable[bytes]) -> AsyncIterator[str]:
    """The text in a JSON object. Raises UnreadableList and RequestTooLarge."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > MAX_JSON_BYTES:
            raise RequestTooLarge(f"The JSON is larger than {MAX_JSON_BYTES} bytes; send the text as text/plain.")
    try:
        yield msgspec.json.decode(body, type=_TextBody).text
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableList('The body is not a JSON object such as {"text": "See 10.1000/182."}.') from error


async def decode_text(pieces: AsyncIterable[bytes]) -> AsyncIterator[str]:
    """The text. A byte that is not UTF-8 is read as Windows-1252: one character. A byte order mark is left out."""
    utf8, decoder = lines.Utf8Stream(), lines.open_decoder()
    async for piece in pieces:
        yield decoder.decode(utf8.feed(piece))
    yield decoder.decode(utf8.end(), final=True)


def write_position(found: FoundName) -> dict[str, Any]:
    """The members of POSITION_FIELDS."""
    return {
        "text": found.text,
        "start": found.start,
        "end": found.end,
        "confidence": found.confidence,
        "rule": found.rule,
    }


async def find_names_of(pieces: AsyncIterable[str], hold_turn: HoldTurn) -> AsyncGenerator[FoundName]:
    """Every name in a text that arrives in pieces, as soon as it is found. Other work goes on meanwhile.

    `hold_turn` is of a lock of all texts: one block is read in a turn of the event loop, whatever the number of texts.
    """
    finder = NameFinder()
    async for piece in pieces:
        for start in range(0, len(piece), BLOCK_CHARACTERS):
            async with hold_turn():
                names = finder.feed(piece[start : start + BLOCK_CHARACTERS])
                await asyncio.sleep(0)
            for found in names:
                yield found
    endings = finder.end()
    while True:
        async with hold_turn():
            last = next(endings, None)
            await asyncio.sleep(0)
        if last is None:
            return
        for found in last:
            yield found


@dataclass(frozen=True, slots=True)
class ReadReference:
    """The place of a reference in its text, and the names that begin in it."""

    start: int
    end: int
    names: tuple[FoundName, ...]


async def read_references(
    text: str, places: Iterable[tuple[int, int]], hold_turn: HoldTurn, begin: int = 0, end: int | None = None
) -> AsyncIterator[ReadReference]:
    """The references at these places of a part of a text, in their order.

    A name can begin in one reference and end in the next, which is left out if no name begins in it. One with
    many names is passed on in parts. `hold_turn` is of a lock of all texts: see find_names_of.
    """
    covered = 0
    async with aclosing(find_names_of(_whole(text[begin:end]), hold_turn)) as names:
        following = await anext(names, None)
        for number, (start, stop) in enumerate(places):
            # References that are read in one turn of the event loop. One of one word of 500 characters takes 1 ms.
            if number % 8 == 0:
                await asyncio.sleep(0)
            found: list[FoundName] = []
            while following is not None and begin + following.start < stop:
                found.append(_move(following, begin))
                # Names of a reference that are kept before they are passed on: a paragraph of a document can have
                # 200,000.
                if len(found) == 1_000:
                    yield ReadReference(start, stop, tuple(found))
                    covered, found = found[-1].end, []
                following = await anext(names, None)
            if found or covered <= start:
                yield ReadReference(start, stop, tuple(found or _read_alone(text[start:stop], start)))
            covered = found[-1].end if found else covered


async def locate_references(text: str, *, is_document: bool) -> ReferencePlaces:
    """Where the references of a text are. 100,000 lines take 0.2 s, in a thread."""
    return await asyncio.to_thread(find_references, text, is_document=is_document)


async def read_reference_items(text: str, located: ReferencePlaces, hold_turn: HoldTurn) -> AsyncIterator[entries.Item]:
    """Every name in the list of references of a text, and each reference without one, in their order.

    The places of names count the characters of the text.
    """
    line, counted = 1, 0

    def count_to(place: int) -> int:
        """The number of the line of a place. Places come in their order."""
        nonlocal line, counted
        line, counted = line + text.count("\n", counted, place), place
        return line

    async for reference in read_references(text, located.places, hold_turn, located.begin, located.end):
        raw = text[reference.start : reference.end]
        block = raw.strip()
        shown, cited = block[: entries.MAX_EXCERPT], block[: entries.MAX_ENTRY_CHARACTERS]
        for found in reference.names:
            yield entries.ListItem(found.text, count_to(found.start), None, shown, cited, found)
        if not reference.names:
            at = count_to(reference.start + len(raw) - len(raw.lstrip()))
            without = entries.WITHOUT_DOI
            yield entries.UnreadableItem(shown, at, without, reason=entries.NO_DOI, derived=derive(cited))


def _read_alone(reference: str, start: int) -> list[FoundName]:
    """The name in a reference of one word, such as a shortDOI. Inside a text, a shortDOI is not read as a name."""
    word = reference.strip()
    if len(word) > MAX_NAME_CHARACTERS or len(word.split()) != 1:
        return []
    return [_move(found, start) for found in find_names(reference)]


def _move(found: FoundName, by: int) -> FoundName:
    return replace(found, start=found.start + by, end=found.end + by)


async def _whole(text: str) -> AsyncIterator[str]:
    yield text
