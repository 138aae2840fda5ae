"""The names in running text as the inputs of a list, each with its position."""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final

from doi_names.find_names import BLOCK_CHARACTERS, FoundName, NameFinder
from doi_proxy.endpoints.fair_lock import HoldTurn
from doi_proxy.web.media_types import BIBTEX, CSV, HTML, RIS, TEXT

#: Media types of texts. Their formats are not parsed: a name is found wherever it stands.
TEXT_TYPES: Final = (TEXT, HTML, "text/markdown", BIBTEX, RIS, CSV)
#: The members of a row about a name in a text, besides its verdict.
POSITION_FIELDS: Final = ("text", "start", "end", "confidence", "rule")


class Extraction:
    """The names of one text. Each row gets the position of the first name that has no row yet."""

    def __init__(self, hold_turn: HoldTurn) -> None:
        self._hold_turn = hold_turn
        #: At most as many as wait for their rows.
        self._waiting: deque[FoundName] = deque()

    async def find(self, pieces: AsyncIterable[bytes]) -> AsyncIterator[FoundName]:
        """The names of a text that arrives in pieces of UTF-8."""
        async for found in find_names_of(decode_text(pieces), self._hold_turn):
            self._waiting.append(found)
            yield found

    def next_position(self) -> dict[str, Any]:
        """The members of POSITION_FIELDS of the next row."""
        return write_position(self._waiting.popleft())


async def decode_text(pieces: AsyncIterable[bytes]) -> AsyncIterator[str]:
    """The text. A byte that is not UTF-8 becomes U+FFFD, which is one character. A byte order mark is left out."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    async for piece in pieces:
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)


def write_position(found: FoundName) -> dict[str, Any]:
    """The members of POSITION_FIELDS."""
    return {
        "text": found.text,
        "start": found.start,
        "end": found.end,
        "confidence": found.confidence,
        "rule": found.rule,
    }


async def find_names_of(pieces: AsyncIterable[str], hold_turn: HoldTurn) -> AsyncIterator[FoundName]:
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
