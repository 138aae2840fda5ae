"""The registered names nearest to a name that does not exist: one edit away, and next to it in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cachetools import TTLCache

from doi_names.name import HandleName
from doi_proxy.features.suggestions.name_search import NameSearch, NearNames
from doi_proxy.features.suggestions.one_edit import list_edited_keys

#: Names one edit away that a page shows: of all, and of those that only the cache has. With more, a reader could walk
#: through what the readers of this resolver look up.
MAX_NEAREST: Final = 5
MAX_CACHED: Final = 3
#: Candidates that are looked up to find out whether they are registered.
_MAX_CHECKED: Final = 12
#: Seconds for which what was found is kept, and the number of names for which it is.
SECONDS: Final = 1
_MAX_KEPT: Final = 1_000
#: Searches that wait or are under way. One runs at a time. At the limit, a page is sent without.
_MAX_SEARCHES: Final = 64


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

    def __init__(self, names: NameSearch, clock: Callable[[], float]) -> None:
        self._names = names
        self._found: TTLCache[str, Nearest] = TTLCache(_MAX_KEPT, SECONDS, timer=clock)
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
        if len(self._searches) >= _MAX_SEARCHES or name.key in self._found:
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
        near = await self._names.find_near(name, candidates)
        one_edit = await self._choose(candidates, near)
        around = [
            HandleName(neighbour)
            for neighbour in select_neighbours(name.key, near.before, near.after)
            if neighbour not in {shown.key for shown in one_edit}
        ]
        return Nearest(
            tuple(spell_like(name, near_name) for near_name in one_edit),
            tuple([spell_like(name, neighbour) for neighbour in around if await self._names.is_registered(neighbour)]),
        )

    async def _choose(self, candidates: Sequence[str], near: NearNames) -> tuple[HandleName, ...]:
        """The registered names among the candidates, in their order."""
        published, known = set(near.published), {*near.published, *near.cached}
        chosen: list[HandleName] = []
        cached = 0
        for key in [candidate for candidate in candidates if candidate in known][:_MAX_CHECKED]:
            is_cached = key not in published
            if len(chosen) >= MAX_NEAREST or (is_cached and cached >= MAX_CACHED):
                continue
            if await self._names.is_registered(name := HandleName(key)):
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
