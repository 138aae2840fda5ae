"""Several upstreams: some for prefixes of their own, the others in order. And all upstreams of one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from msgspec.structs import replace

from doi_names.name import HandleName, fold
from doi_names.prefix_record import PREFIX_RECORDS
from doi_proxy import errors
from doi_proxy.upstream.budget import Budget
from doi_proxy.upstream.guard import Guard
from doi_proxy.upstream.local import SealedSource
from doi_proxy.upstream.source import AgencySource, Refusal, Source, UpstreamQuery
from handle_protocol.answer import Answer


class RoutedSource:
    """Queries the upstream whose prefix is the longest match, else the default upstreams in order.

    `routes` maps prefixes to sources: "10.5072" also takes its sub-divisions ("10.5072.1"). A name
    under a routed prefix is queried at that upstream only: the others do not know it, and their "not found" would be
    wrong. There is at least one default upstream. If it could not verify a name, the next one is queried. "Not found"
    is an answer and ends the search. So does a wrong signature, if the query needs one. If all fail, the error is the
    first of a query that was sent, else the first.
    """

    def __init__(self, routes: Mapping[str, Source], default: Sequence[Source]) -> None:
        self._routes = {fold(prefix).rstrip("/"): source for prefix, source in routes.items()}
        self._default = tuple(default)
        self._local_routes: Mapping[str, Source] = {}
        #: Every source that got a query. A route can end before its queries.
        self._sources = dict.fromkeys((*self._routes.values(), *self._default))

    def use_local_routes(self, routes: Mapping[str, Source]) -> None:
        """Put the routes of the local records in force, in place of the previous ones. They win over `routes`."""
        self._local_routes = {fold(prefix): source for prefix, source in routes.items()}
        self._sources |= dict.fromkeys(routes.values())

    async def fetch(self, query: UpstreamQuery) -> Answer:
        """The first answer. Raises CouldNotVerify."""
        failures: list[errors.CouldNotVerify] = []
        for number, source in enumerate(self.sources_of(query.name), 1):
            try:
                answer = await source.fetch(query)
            except errors.CouldNotVerify as error:
                if query.certified and isinstance(error, errors.UnprovenAnswer):
                    # The next upstream could not prove its answer either, and a forger could choose it.
                    raise
                failures.append(error)
            else:
                return answer if number == 1 else replace(answer, detail=f"upstream-{number}")
        raise _choose_failure(failures)

    async def aclose(self) -> None:
        """Close every source, each once."""
        for source in self._sources:
            await source.aclose()

    def find_refusal(self, name: HandleName) -> Refusal | None:
        """The refusal that ends first, if every upstream refuses a query about a name now."""
        refusals = [find_refusal(source, name) for source in self.sources_of(name)]
        if None in refusals:
            return None
        return min(filter(None, refusals), key=attrgetter("seconds"))

    def sources_of(self, name: HandleName) -> Sequence[Source]:
        """The sources that a query about a name goes to, in order."""
        routed = self._route(name.key)
        return self._default if routed is None else (routed,)

    def _route(self, key: str) -> Source | None:
        # The record of a prefix lives where the names under the prefix live.
        prefix = key.removeprefix(PREFIX_RECORDS).partition("/")[0]
        while prefix:
            source = self._local_routes.get(prefix) or self._routes.get(prefix)
            if source is not None:
                return source
            prefix = prefix.rpartition(".")[0]
        return None


def _choose_failure(failures: Sequence[errors.CouldNotVerify]) -> errors.CouldNotVerify:
    unsent = (errors.BreakerOpen, errors.UpstreamPaused, errors.NotAdmitted, errors.NotInBundle)
    sent = (error for error in failures if not isinstance(error, unsent))
    return next(sent, failures[0])


def find_refusal(source: Source, name: HandleName) -> Refusal | None:
    """Who refuses a query about a name to this source now. None if one would be sent."""
    match source:
        case Guard():
            return source.find_refusal()
        case RoutedSource():
            return source.find_refusal(name)
        case SealedSource():
            return Refusal("sealed", errors.NotInBundle.token, inf)
    return None


def find_last_answer(source: Source, name: HandleName) -> float:
    """Seconds since an upstream that a query about a name goes to has answered about any name. Infinity without one."""
    match source:
        case Guard():
            return source.seconds_since_answer
        case RoutedSource():
            return min(find_last_answer(one, name) for one in source.sources_of(name))
    return inf


@dataclass(frozen=True, slots=True)
class Upstream:
    """The two services of the upstreams, with a breaker for each upstream and one budget."""

    source: Source
    agencies: AgencySource | None
    #: The guard of each upstream by its base URL; all of them share one budget.
    guards: dict[str, Guard]
    budget: Budget
    #: Opens an upstream, or returns the one that is open. None if nothing is queried.
    open_source: Callable[[str], Source] | None = None

    def use_routes(self, routes: Mapping[str, str]) -> None:
        """Put the routes of local records in force: an upstream's URL by prefix. Raises ConfigurationError."""
        if self.open_source is not None and isinstance(self.source, RoutedSource):
            self.source.use_local_routes({prefix: self.open_source(url) for prefix, url in routes.items()})
