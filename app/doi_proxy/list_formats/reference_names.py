"""The names of each reference of a text, and what stands for one without, in the order of the text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from doi_names.derived import derive
from doi_names.find_names import MAX_NAME_CHARACTERS, FoundName, find_names
from doi_proxy.endpoints.fair_lock import HoldTurn
from doi_proxy.list_formats.extraction import find_names_of
from doi_proxy.list_formats.lines import (
    MAX_ENTRY_CHARACTERS,
    MAX_EXCERPT,
    NO_DOI,
    WITHOUT_DOI,
    Item,
    ListItem,
    UnreadableItem,
)
from doi_proxy.list_formats.reference_list import ReferencePlaces, find_references

#: Names of a reference that are kept before they are passed on: a paragraph of a document can have 200,000.
_MAX_NAMES: Final = 1_000


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
                if len(found) == _MAX_NAMES:
                    yield ReadReference(start, stop, tuple(found))
                    covered, found = found[-1].end, []
                following = await anext(names, None)
            if found or covered <= start:
                yield ReadReference(start, stop, tuple(found or _read_alone(text[start:stop], start)))
            covered = found[-1].end if found else covered


async def locate_references(text: str, *, is_document: bool) -> ReferencePlaces:
    """Where the references of a text are. 100,000 lines take 0.2 s, in a thread."""
    return await asyncio.to_thread(find_references, text, is_document=is_document)


async def read_reference_items(text: str, located: ReferencePlaces, hold_turn: HoldTurn) -> AsyncIterator[Item]:
    """Every name in the list of references of a text, and each reference without one, in their order.

    The places of names count the characters of the text.
    """
    lines = _LineCounter(text)
    async for reference in read_references(text, located.places, hold_turn, located.begin, located.end):
        for item in _list_items(text, reference, lines):
            yield item


class _LineCounter:
    """Counts the lines of a text up to places that come in their order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line, self._at = 1, 0

    def count_to(self, place: int) -> int:
        """The number of the line of a place."""
        self._line += self._text.count("\n", self._at, place)
        self._at = place
        return self._line


def _list_items(text: str, reference: ReadReference, lines: _LineCounter) -> list[Item]:
    """The items of a reference."""
    raw = text[reference.start : reference.end]
    block = raw.strip()
    excerpt, entry = block[:MAX_EXCERPT], block[:MAX_ENTRY_CHARACTERS]
    if not reference.names:
        line = lines.count_to(reference.start + len(raw) - len(raw.lstrip()))
        return [UnreadableItem(excerpt, line, WITHOUT_DOI, reason=NO_DOI, derived=derive(entry))]
    return [ListItem(found.text, lines.count_to(found.start), None, excerpt, entry, found) for found in reference.names]


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
