"""The names that an answer suggests: those that exist first, those that do not exist never."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Final

from doi_names.derived import Candidates, derive, read_candidates
from doi_names.errors import InvalidName
from doi_names.find_names import FoundName, find_names
from doi_names.name import HandleName
from doi_names.presentation import decode
from doi_names.suggestion import Reading, Suggestion, read_best
from doi_proxy.errors import CouldNotVerify
from doi_proxy.features.suggestions.nearest import NOTHING_NEAR, Nearest, NearestNames
from doi_proxy.resolver.resolution import Conditions, Resolution
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.upstream.budget import TokenBucket
from doi_proxy.upstream.source import ClientNetwork, Priority
from doi_proxy.web.shown_values import show_names
from doi_proxy.web.stage import PageKind, Section

#: Queries that wait or are under way in one process. At the limit, a page is sent without a query.
CONCURRENCY: Final = 8
#: Upstream queries for one page, at most: a name that does not exist costs the upstream three queries, not one.
QUERIES: Final = 2
#: Seconds that a page waits for these queries.
QUERY_TIMEOUT: Final = 1.0
#: Characters of a text in the form that are searched for a name.
_MAX_SEARCHED: Final = 512


class Existence:
    """Looks up names that no client requested.

    `queries` limits the upstream queries of one look-up, `concurrency` those that wait or are under way for all clients
    together, and `timeout` the seconds that a look-up waits for them. A query has the priority of bulk work and is
    charged to the client. One that takes longer continues in the background. `bucket` limits those of lists.
    """

    def __init__(
        self,
        resolver: Resolver,
        *,
        queries: int,
        timeout: float,
        concurrency: int = CONCURRENCY,
        bucket: TokenBucket | None = None,
    ) -> None:
        self._resolver = resolver
        self.bucket = bucket
        self._queries = queries
        self._concurrency = concurrency
        self._timeout = timeout
        self._tasks: set[asyncio.Task[Resolution | None]] = set()

    def find(self, name: HandleName) -> bool | None:
        """Whether the name exists. None if memory does not know."""
        answer = self._resolver.resolve_now(name)
        return None if answer is None else answer.is_registered

    async def look_up(self, names: Sequence[HandleName], client: ClientNetwork) -> None:
        """Bring what the store or the upstream knows about the names into memory. Raises nothing."""
        await self._query([name for name in names if await self._recall(name) is None], client)

    async def _recall(self, name: HandleName) -> Resolution | None:
        """What memory or the store knows, without a query. The answer is not counted."""
        await self._resolver.cache.get(name.key)
        return self._resolver.resolve_now(name)

    async def check(self, name: HandleName, client: ClientNetwork) -> bool | None:
        """Whether a name of a list exists. None if the budget has no room, or the upstream gave no answer in time."""
        known = await self._recall(name)
        if known is not None:
            return known.is_registered
        if not self._queries or self.bucket is None or await self.bucket.take():
            return None
        found = await self._query([name], client)
        return found[0].is_registered if found else None

    async def _query(self, names: Sequence[HandleName], client: ClientNetwork) -> list[Resolution]:
        """What the upstream, or an old record, says of the names in time."""
        names = names[: self._queries]
        if not names or len(self._tasks) + len(names) > self._concurrency:
            return []
        tasks = {asyncio.create_task(self._resolve(name, client)) for name in names}
        for task in tasks:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        done, _ = await asyncio.wait(tasks, timeout=self._timeout)
        return [found for task in done if (found := task.result()) is not None]

    async def _resolve(self, name: HandleName, client: ClientNetwork) -> Resolution | None:
        with suppress(CouldNotVerify):
            return await self._resolver.resolve(name, Conditions(priority=Priority.BULK, client=client))
        return None


class SuggestedNames(Section):
    """The names for pages and problems.

    `own_hosts` are the hosts of this resolver, as `doi_names.suggestion.read_best` expects them.
    """

    template: str = "suggestions.html"

    def __init__(self, existence: Existence, own_hosts: frozenset[str], nearest: NearestNames | None = None) -> None:
        self._existence = existence
        self._own_hosts = own_hosts
        #: `read_candidates` of a text and the name that it is. It takes a fifth of a page's time. One page reads them
        #: before its look-ups, for its block and for what it watches.
        self._read_candidates = lru_cache(16)(partial(read_candidates, own_hosts=own_hosts))
        self._nearest = nearest

    def suggest_now(self, text: str, name: HandleName | None) -> tuple[Reading | None, list[Suggestion]]:
        """What memory knows of what `suggest` returns."""
        candidates = self._read_candidates(text, name)
        states = [
            (candidate, self._existence.find(candidate.doi)) for candidate in (*candidates.repairs, *candidates.guesses)
        ]
        return candidates.best, _select(candidates, states, () if name is None else self._find_near(name).one_edit)

    async def suggest(
        self,
        text: str,
        name: HandleName | None,
        client: ClientNetwork,
        *,
        checks: bool,
        longer: Sequence[Suggestion] = (),
        derived: Sequence[FoundName] = (),
    ) -> tuple[Reading | None, list[Suggestion]]:
        """The likeliest reading of a text, or of a name that does not exist, and what else may be meant.

        Names that exist come first: those with an error undone, those that look alike or follow by rule, and the
        nearest registered ones. Then come repairs of which nothing is known. With `checks`, names are looked up at the
        cost of `client`, and repairs that do not exist are last. `longer` and `derived` are as read_candidates expects.
        """
        candidates = read_candidates(text, name, self._own_hosts, longer=longer, derived=derived)
        if name is not None:
            await self.search(name)
        states: list[tuple[Suggestion, bool | None]] = []
        # Of the names that look alike, or follow by rule, one row of a list looks three up.
        for candidate in (*candidates.repairs, *candidates.guesses[: 3 if checks else None]):
            exists = (
                await self._existence.check(candidate.doi, client) if checks else self._existence.find(candidate.doi)
            )
            states.append((candidate, exists))
        near = () if name is None else self._find_near(name).one_edit
        return candidates.best, _select(candidates, states, near, keeps_missing=checks)

    async def check(self, suggestions: Iterable[Suggestion], client: ClientNetwork) -> list[Suggestion]:
        """The suggestions, those that exist first, without those that do not; at the cost of `client`."""
        states = [(suggestion, await self._existence.check(suggestion.doi, client)) for suggestion in suggestions]
        return _select(Candidates(None, tuple(suggestions), ()), states, ())

    async def lacks_prefix(self, name: HandleName, client: ClientNetwork) -> bool:
        """Whether it is known that nobody has the prefix of a name: what looked like a DOI is something else."""
        return await self._existence.check(HandleName(name.prefix), client) is False

    @property
    def can_search(self) -> bool:
        """Whether near names are searched, which takes a turn of a thread for each."""
        return self._nearest is not None

    async def search(self, name: HandleName) -> None:
        """Search for the registered names near a name."""
        if self._nearest is not None:
            await self._nearest.search(name, QUERY_TIMEOUT)

    async def prepare(self, name: HandleName, client: str | None) -> None:
        """Find out which of the names that `suggest_now` lists exist, at the cost of `client`, a network."""
        candidates = self._read_candidates(name.text, name)
        names = [candidate.doi for candidate in (*candidates.repairs, *candidates.guesses)]
        await self._existence.look_up(names, client)
        await self.search(name)

    def _find_near(self, name: HandleName) -> Nearest:
        return NOTHING_NEAR if self._nearest is None else self._nearest.find(name)

    async def find_in_text(self, text: str, client: str | None) -> Sequence[HandleName]:
        """The names in a text that are not doubtful, and what else each may be, if that exists.

        A name that does not exist is left out if something else does. Several only in a text of several words. "%"
        begins an escape.
        """
        with suppress(InvalidName):
            text = decode(text)
        names: dict[str, HandleName] = {}
        in_text = [found for found in find_names(text[:_MAX_SEARCHED]) if found.confidence != "doubtful"]
        for found in in_text:
            # What else the name may be that is looked up.
            # It may also end earlier or later: a book and its chapter.
            others = found.suggestions[:2] if found.confidence == "likely" or found.rule is None else ()
            known = [other.doi for other in await self.check(others, client) if other.exists]
            is_likely = found.confidence == "likely"
            exists = await self._existence.check(found.name, client) if known or is_likely else None
            if exists is not False or not (known or (is_likely and await self.lacks_prefix(found.name, client))):
                names.setdefault(found.name.key, found.name)
            for other in known:
                names.setdefault(other.key, other)
        if names:
            return tuple(names.values()) if len(names) == 1 or len(text.split()) > 1 else ()
        best = None if in_text else read_best(text, own_hosts=self._own_hosts)
        if best is not None and best.confidence != "doubtful":
            return (best.name,)
        derived = derive(text[:_MAX_SEARCHED])
        # The request looks a single name up before it is shown.
        return (derived[0].name,) if len(derived) == 1 else ()

    def read(self, kind: PageKind, name: HandleName | None, text: str) -> Mapping[str, Any]:
        """The member `suggestions`: of a page the names, of a problem also the rule of each."""
        if kind == "values":
            return {}
        _, found = self.suggest_now(text if name is None else name.text, name)
        if kind == "problem":
            rows = [{"doi": suggestion.doi.text, "rule": suggestion.rule} for suggestion in found]
            return {"suggestions": rows} if rows else {}
        # The not-found page itself offers a name without the slashes at its end.
        offered = name.text.rstrip("/") if kind == "not_found" and name is not None else ""
        shown = [suggestion for suggestion in found if suggestion.doi.text != offered]
        around = () if name is None else self._find_near(name).around
        return {
            "registered": show_names([suggestion.doi for suggestion in shown if suggestion.exists]),
            "suggestions": show_names([suggestion.doi for suggestion in shown if not suggestion.exists]),
            "around": show_names([near_name for near_name in around if near_name.text != offered]),
        }

    def list_watched(self, name: HandleName) -> Sequence[HandleName]:
        """The names that `suggest_now` lists if they exist, or may exist."""
        return [found.doi for found in self._read_candidates(name.text, name).repairs]


def _select(
    candidates: Candidates,
    states: Sequence[tuple[Suggestion, bool | None]],
    near: Iterable[HandleName],
    *,
    keeps_missing: bool = False,
) -> list[Suggestion]:
    """The candidates with what is known of them, in the order in which they are shown."""
    known = [replace(suggestion, exists=True) for suggestion, exists in states if exists]
    keys = {suggestion.doi.key for suggestion in known}
    # The rule of a registered name one edit away.
    known += [Suggestion(name, "nearest", exists=True) for name in near if name.key not in keys]
    keys |= {suggestion.doi.key for suggestion in known}
    open_states = [(suggestion, exists) for suggestion, exists in states if suggestion in candidates.repairs]
    unknown = [found for found, exists in open_states if exists is None and found.doi.key not in keys]
    missing = [replace(found, exists=False) for found, exists in open_states if exists is False]
    return [*known, *unknown, *(missing if keeps_missing else ())]
