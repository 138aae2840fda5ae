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
from doi_proxy.list_formats.reference_list import find_list, find_references

#: References that are read in one turn of the event loop.
_REFERENCES_A_TURN: Final = 64


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

    A name can begin in one reference and end in the next, which is left out if no name begins in it. `hold_turn` is of
    a lock of all texts: see find_names_of.
    """
    covered = 0
    async with aclosing(find_names_of(_whole(text[begin:end]), hold_turn)) as names:
        following = await anext(names, None)
        for number, (start, stop) in enumerate(places):
            if number % _REFERENCES_A_TURN == 0:
                await asyncio.sleep(0)
            found: list[FoundName] = []
            while following is not None and begin + following.start < stop:
                found.append(_move(following, begin))
                following = await anext(names, None)
            if found or covered <= start:
                yield ReadReference(start, stop, tuple(found or _read_alone(text[start:stop], start)))
            covered = found[-1].end if found else covered


async def read_reference_items(text: str, hold_turn: HoldTurn, *, is_document: bool) -> AsyncIterator[Item]:
    """Every name in the list of references of a text, and each reference without one, in their order.

    The places of names count the characters of the text. In a document, each paragraph is one line.
    """
    begin, end, has_heading = find_list(text)
    places = find_references(text, (begin, end), has_heading=has_heading, is_document=is_document)
    line, line_at = 1, 0
    async for reference in read_references(text, places, hold_turn, begin, end):
        line += text.count("\n", line_at, reference.start)
        line_at = reference.start
        for item in _list_items(text, reference, line):
            yield item


def _list_items(text: str, reference: ReadReference, line: int) -> list[Item]:
    """The items of a reference that begins on a line."""
    raw = text[reference.start : reference.end]
    block = raw.strip()
    excerpt, entry = block[:MAX_EXCERPT], block[:MAX_ENTRY_CHARACTERS]
    if not reference.names:
        place = line + raw.count("\n", 0, len(raw) - len(raw.lstrip()))
        return [UnreadableItem(excerpt, place, WITHOUT_DOI, reason=NO_DOI, derived=derive(entry))]
    return [
        ListItem(found.text, line + text.count("\n", reference.start, found.start), None, excerpt, entry, found)
        for found in reference.names
    ]


def _read_alone(reference: str, start: int) -> list[FoundName]:
    """The name that a reference of one word is, such as a shortDOI, which is none inside a text."""
    word = reference.strip()
    if len(word) > MAX_NAME_CHARACTERS or len(word.split()) != 1:
        return []
    return [_move(found, start) for found in find_names(reference)]


def _move(found: FoundName, by: int) -> FoundName:
    return replace(found, start=found.start + by, end=found.end + by)


async def _whole(text: str) -> AsyncIterator[str]:
    yield text
