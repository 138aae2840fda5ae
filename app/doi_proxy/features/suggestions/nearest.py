"""The registered names nearest to a name that does not exist: one edit away, and next to it in order."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final

from cachetools import TTLCache

from doi_names.name import HandleName
from doi_proxy.cache.store import NearKeys
from doi_proxy.cache.tiered import TieredStore
from doi_proxy.errors import PrefixDenied, StoreError
from doi_proxy.resolver.resolver import Resolver
from handle_protocol.referral import ResponseCode

#: An item of a serial (ANSI/NISO Z39.56, section 5), without the contribution after it.
_CUT_SICI: Final = re.compile(r"(?:\(SICI\))?[0-9]{4}-?[0-9]{3}[0-9X]\([0-9/]{4,20}\)[0-9A-Z/:.-]{1,20}", re.IGNORECASE)
#: Of a longer name, no candidates are made.
MAX_CHARACTERS: Final = 96
#: Characters that a writer takes for each other, of which a key has the upper case: "l" and "1", "rn" and "m".
_LOOK_ALIKES: Final = (
    *("0O", "1IL", "2Z", "5S", "6GB", "8B", "9GQ", "UV", "-_.", "([", ")]"),
    ("RN", "M"),
    ("CL", "D"),
    ("VV", "W"),
)
_ALTERNATIVES: Final = {
    character: [other for group in _LOOK_ALIKES if character in group for other in group if other != character]
    for character in chain.from_iterable(_LOOK_ALIKES)
}
_LONGEST: Final = max(map(len, _ALTERNATIVES))


def list_edited_keys(name: HandleName) -> list[str]:
    """The keys of the names one edit away in the suffix, the likeliest first: about 30 for each of its characters.

    A character too many goes before two that are swapped, a look-alike, and a character that was dropped. A name that
    is not a DOI, or is longer than MAX_CHARACTERS, has none.
    """
    key, start = name.key, len(name.prefix) + 1
    if not name.is_doi or len(key) > MAX_CHARACTERS:
        return []
    return list(dict.fromkeys(candidate for candidate in _list_edits(key, start) if candidate != key))


def _list_edits(key: str, start: int) -> Iterator[str]:
    places = range(len(key) - 1, start - 1, -1)
    # A name with an empty suffix is not a DOI.
    yield from (key[:at] + key[at + 1 :] for at in places if len(key) > start + 1)
    yield from (key[:at] + key[at + 1] + key[at] + key[at + 2 :] for at in places[1:])
    for at in places:
        for length in range(1, _LONGEST + 1):
            for other in _ALTERNATIVES.get(key[at : at + length], ()):
                yield key[:at] + other + key[at + length :]
    yield from _insert(key, start)


def _insert(key: str, start: int) -> Iterator[str]:
    """Each character that can have been dropped: a digit beside a digit, a letter beside a letter, or a mark.

    All characters everywhere would be twice as many, and find 0.1 % more of the names.
    """
    for at in reversed(range(start, len(key) + 1)):
        around = key[max(start, at - 1) : at + 1]
        has_digit = any(character.isdigit() for character in around)
        has_other = not all(character.isdigit() for character in around)
        # What a writer can have dropped beside a digit, beside a letter, and anywhere.
        dropped = (
            ("0123456789" if has_digit or not around.isalnum() else "")
            + ("ABCDEFGHIJKLMNOPQRSTUVWXYZ" if has_other else "")
            + ".-_/()"
        )
        yield from (key[:at] + character + key[at:] for character in dropped)


MAX_CACHED: Final = 3
#: Seconds for which what was found is kept, for at most 1,000 names.
SECONDS: Final = 1


@dataclass(frozen=True, slots=True)
class Nearest:
    """Registered names near a name: one edit away, the likeliest first, and those around it in order."""

    one_edit: tuple[HandleName, ...] = ()
    around: tuple[HandleName, ...] = ()


NOTHING_NEAR: Final = Nearest()


class NearestNames:
    """Finds the nearest names in the operator's records, the agencies' files and the cache.

    No upstream is queried.
    """

    def __init__(self, resolver: Resolver, cache: TieredStore, clock: Callable[[], float]) -> None:
        self._resolver = resolver
        self._cache = cache
        self._clock = clock
        self._found: TTLCache[str, Nearest] = TTLCache(1_000, SECONDS, timer=clock)
        self._searches: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    def find(self, name: HandleName) -> Nearest:
        """What the last search found, if that was within SECONDS."""
        found: Nearest = self._found.get(name.key, NOTHING_NEAR)
        return found

    async def search(self, name: HandleName, timeout: float) -> None:
        """Search for the names near a name, and wait `timeout` seconds at most. Raises nothing.

        A search that takes longer goes on, and keeps its place: its thread cannot be stopped.
        """
        # Searches that wait or are under way. One runs at a time. At the limit, a page is sent without.
        if len(self._searches) >= 64 or name.key in self._found:
            return
        task = asyncio.create_task(self._search_in_turn(name))
        self._searches.add(task)
        task.add_done_callback(self._searches.discard)
        await asyncio.wait({task}, timeout=timeout)

    async def _search_in_turn(self, name: HandleName) -> None:
        """Search when no other search runs. The store has one thread of those that DNS and files use too."""
        async with self._turn:
            self._found[name.key] = await self._search(name)

    async def _search(self, name: HandleName) -> Nearest:
        candidates = list_edited_keys(name)
        if not candidates:
            return NOTHING_NEAR
        # A larger memory is not searched: each key takes 0.1 us.
        if self._cache.memory.entries < 200_000 and _CUT_SICI.fullmatch(name.suffix or ""):
            whole = [key async for key in self._cache.memory.walk(f"{name.key}<")]
            candidates = [*whole[:MAX_CACHED], *candidates]
        near = await self._find_near(name.key, candidates)
        one_edit = await self._choose(candidates, near)
        around = [
            HandleName(neighbour)
            for neighbour in select_neighbours(name.key, near.before, near.after)
            if neighbour not in {shown.key for shown in one_edit}
        ]
        return Nearest(
            tuple(spell_like(name, near_name) for near_name in one_edit),
            tuple([spell_like(name, neighbour) for neighbour in around if await self._is_registered(neighbour)]),
        )

    async def _find_near(self, key: str, candidates: Sequence[str]) -> NearKeys:
        """The candidates that local records, the agencies' files and the cache have, and the neighbours of a key.

        A Valkey server is not searched: it would be a message of 50 kB for each page.
        """
        found, records = NearKeys(), self._resolver.local_records
        if self._cache.registry is not None:
            with suppress(StoreError):  # a request that needs the store reports it
                found = await self._cache.registry.find_near(key, candidates)
        recent = self._cache.memory.list_known(candidates)
        known, before, after = (records and records.find_near(key, candidates)) or ([], [], [])
        return NearKeys(
            known=[*found.known, *recent],
            before=sorted({*before, *found.before}, reverse=True),
            after=sorted({*after, *found.after}),
            records=[*known, *found.records],
        )

    async def _is_registered(self, name: HandleName) -> bool:
        """Whether the operator or the cache says that the name exists, however old that is."""
        records = self._resolver.local_records
        try:
            local = None if records is None else records.resolve(name, self._clock())
        except PrefixDenied:
            return False
        if local is not None:
            return local.tombstone is None and local.is_registered
        entry = await self._cache.find(name.key)
        return entry is not None and entry.answer.code is ResponseCode.SUCCESS

    async def _choose(self, candidates: Sequence[str], near: NearKeys) -> tuple[HandleName, ...]:
        """The registered names among the candidates, in their order."""
        published, known = set(near.records), {*near.records, *near.known}
        chosen: list[HandleName] = []
        cached = 0
        # Candidates that are looked up to find out whether they are registered.
        for key in [candidate for candidate in candidates if candidate in known][:12]:
            is_cached = key not in published
            # Names one edit away that a page shows: of all, and of those that only the cache has. With more, a reader
            # could walk through what the readers of this resolver look up.
            if len(chosen) >= 5 or (is_cached and cached >= MAX_CACHED):
                continue
            if await self._is_registered(name := HandleName(key)):
                chosen.append(name)
                cached += is_cached
        return tuple(chosen)


def select_neighbours(key: str, before: Iterable[str], after: Iterable[str]) -> list[str]:
    """The keys around a key, in order, that share its prefix and at least half of its suffix."""
    start = key.index("/") + 1
    least = start + (len(key) - start + 1) // 2
    return [neighbour for neighbour in (*reversed(list(before)), *after) if neighbour[:least] == key[:least]]


def spell_like(name: HandleName, found: HandleName) -> HandleName:
    """A name of which only the key is known, in the letter case of the name that it is near to."""
    text, key = name.text, found.key
    shortest = min(len(text), len(key))
    start = next((at for at in range(shortest) if key[at] != name.key[at]), shortest)
    end = next((at for at in range(shortest - start) if key[-1 - at] != name.key[-1 - at]), shortest - start)
    middle = key[start : len(key) - end]
    if text != name.key:
        middle = middle.lower()
    return HandleName(text[:start] + middle + text[len(text) - end :])
