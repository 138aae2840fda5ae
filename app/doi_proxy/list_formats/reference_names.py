"""The names of each reference of a list, in the order of the text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from doi_names.find_names import MAX_NAME_CHARACTERS, FoundName, find_names
from doi_proxy.endpoints.fair_lock import HoldTurn
from doi_proxy.list_formats.extraction import find_names_of

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
