"""The names that an answer suggests: those that exist first, those that do not exist never."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from doi_names.errors import InvalidName
from doi_names.find_names import find_names
from doi_names.name import HandleName
from doi_names.percent import decode
from doi_names.suggestion import (
    Reading,
    Suggestion,
    read_and_suggest,
    read_best,
    suggest,
    suggest_instead,
)
from doi_proxy.errors import CouldNotVerify
from doi_proxy.features.suggestions.nearest import NOTHING_NEAR, NearestNames
from doi_proxy.resolver.options import Conditions
from doi_proxy.resolver.resolution import Resolution
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.resolver.single_flight import Replaced
from doi_proxy.upstream.budget import TokenBucket
from doi_proxy.upstream.source import ClientNetwork, Priority
from doi_proxy.web.section import PageKind, Section
from doi_proxy.web.shown_name import show_names

#: Queries that wait or are under way in one process. At the limit, a page is sent without a query.
CONCURRENCY: Final = 8
#: Upstream queries for one page, at most: a name that does not exist costs the upstream three queries, not one.
QUERIES: Final = 2
#: Seconds that a page waits for these queries.
QUERY_TIMEOUT: Final = 1.0
#: The share of the upstream's budget that all of them have together.
BUDGET_SHARE: Final = 0.05
#: Seconds of it that are saved up.
BUDGET_SECONDS: Final = 10.0
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
        with suppress(CouldNotVerify, Replaced):
            return await self._resolver.resolve(name, Conditions(priority=Priority.BULK, client=client))
        return None


class SuggestedNames(Section):
    """The names for pages and problems.

    `own_hosts` are the hosts of this resolver, as `doi_names.suggestion.suggest` expects them.
    """

    template: str = "suggestions.html"

    def __init__(self, existence: Existence, own_hosts: frozenset[str], nearest: NearestNames | None = None) -> None:
        self._existence = existence
        self._own_hosts = own_hosts
        self._nearest = nearest

    @property
    def background(self) -> TokenBucket | None:
        """The share of the upstream's budget for what no client requested."""
        return self._existence.bucket

    def for_name(self, name: HandleName) -> list[Suggestion]:
        """What is suggested for a name that does not exist, by what memory knows."""
        return self._sort(suggest_instead(name, own_hosts=self._own_hosts))

    def for_text(self, text: str) -> list[Suggestion]:
        """What is suggested for a text that is not a name, by what memory knows."""
        return self._sort(suggest(text, own_hosts=self._own_hosts))

    def read_name(self, name: HandleName) -> tuple[Reading | None, list[Suggestion]]:
        """The likeliest reading of a name that does not exist, and what else is suggested, by what memory knows."""
        best, found = read_and_suggest(name.text, name, own_hosts=self._own_hosts)
        return best, self._sort(found)

    def read_text(self, text: str) -> tuple[Reading | None, list[Suggestion]]:
        """The likeliest reading of a text that is not a name, and what else is suggested, by what memory knows."""
        best, found = read_and_suggest(text, None, own_hosts=self._own_hosts)
        return best, self._sort(found)

    async def check(self, suggestions: Iterable[Suggestion], client: str | None) -> list[Suggestion]:
        """The suggestions, those that exist first, those that do not exist last; at the cost of `client`."""
        found = [
            replace(suggestion, exists=await self._existence.check(suggestion.doi, client))
            for suggestion in suggestions
        ]
        return sorted(found, key=lambda suggestion: {True: 0, None: 1, False: 2}[suggestion.exists])

    async def prepare(self, name: HandleName, client: str | None) -> None:
        """Find out which of the names that `for_name` suggests exist, at the cost of `client`, a network."""
        await self._existence.look_up(self.list_watched(name), client)
        if self._nearest is not None:
            await self._nearest.search(name, QUERY_TIMEOUT)

    async def prepare_record(self, name: HandleName, conditions: Conditions) -> None:
        """The page of a record has no suggestions."""

    def find_in_text(self, text: str) -> Sequence[HandleName]:
        """The names in a text that are not doubtful; several only in a text of several words. "%" begins an escape."""
        with suppress(InvalidName):
            text = decode(text)
        names = {
            found_name.name.key: found_name.name
            for found_name in find_names(text[:_MAX_SEARCHED])
            if found_name.confidence != "doubtful"
        }
        if names:
            return tuple(names.values()) if len(names) == 1 or len(text.split()) > 1 else ()
        best = read_best(text, own_hosts=self._own_hosts)
        return () if best is None or best.confidence == "doubtful" else (best.name,)

    def read(self, kind: PageKind, name: HandleName | None, text: str) -> Mapping[str, Any]:
        """The member `suggestions`: of a page the names, of a problem also the rule of each."""
        if kind == "values":
            return {}
        found = self.for_text(text) if name is None else self.for_name(name)
        if kind == "problem":
            rows = [{"doi": suggestion.doi.text, "rule": suggestion.rule} for suggestion in found]
            return {"suggestions": rows} if rows else {}
        # The not-found page itself offers a name without the slashes at its end.
        offered = name.text.rstrip("/") if kind == "not_found" and name is not None else ""
        names = [suggestion.doi for suggestion in found if suggestion.doi.text != offered]
        near = NOTHING_NEAR if self._nearest is None or name is None else self._nearest.find(name)
        edited = [near_name for near_name in near.one_edit if near_name.text != offered]
        registered = list(
            dict.fromkeys([*(candidate for candidate in names if self._existence.find(candidate)), *edited])
        )
        unchecked = [candidate for candidate in names if candidate not in registered]
        return {
            "registered": show_names(registered),
            "suggestions": show_names(unchecked),
            "around": show_names([near_name for near_name in near.around if near_name.text != offered]),
        }

    def list_watched(self, name: HandleName) -> Sequence[HandleName]:
        """The names that `for_name` suggests if they exist, or may exist."""
        return [found.doi for found in suggest_instead(name, own_hosts=self._own_hosts)]

    def _sort(self, suggestions: Iterable[Suggestion]) -> list[Suggestion]:
        states = [(found, self._existence.find(found.doi)) for found in suggestions]
        registered = [replace(found, exists=True) for found, exists in states if exists]
        return registered + [found for found, exists in states if exists is None]
