"""The names in running text, each with its position."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from typing import Any, Final

import msgspec

from doi_names.find_names import BLOCK_CHARACTERS, FoundName, NameFinder
from doi_proxy.endpoints.fair_lock import HoldTurn
from doi_proxy.errors import RequestTooLarge, UnreadableList
from doi_proxy.list_formats.lines import Utf8Stream, open_decoder
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
    utf8, decoder = Utf8Stream(), open_decoder()
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
