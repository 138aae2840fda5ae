"""Several upstreams: some for their own prefixes, the others one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from app.doi.name import fold
from app.errors import BreakerOpen, BudgetSpent, CouldNotVerify, NotInBundle, UpstreamPaused
from app.handle.answer import Answer
from app.upstream.source import Question, Source

#: The record of a prefix is the handle 0.NA/<prefix>; it lives where the names under the prefix live.
_PREFIX_RECORDS: Final = "0.NA/"


class RoutedSource:
    """Asks the upstream whose prefix matches longest, else the default ones in order.

    `routes` maps prefixes to sources: "10.5072" also takes its sub-divisions ("10.5072.1"). A routed prefix is
    asked at its own upstream alone: the others do not know it, and their "not found" would be a lie. Of the default
    upstreams (at least one) the next is asked when one could not verify; a "not found" is an answer and ends the
    search. When all fail, the error is that of the first one that was really asked, else the first one's.
    """

    def __init__(self, routes: Mapping[str, Source], default: Sequence[Source]) -> None:
        self._routes = {fold(prefix).rstrip("/"): source for prefix, source in routes.items()}
        self._default = tuple(default)

    async def ask(self, question: Question) -> Answer:
        """The first answer. Raises CouldNotVerify."""
        routed = self._route(question.name.key)
        failures: list[CouldNotVerify] = []
        for source in self._default if routed is None else (routed,):
            try:
                return await source.ask(question)
            except CouldNotVerify as error:
                failures.append(error)
        raise _most_telling(failures)

    async def aclose(self) -> None:
        """Close every source, each once."""
        for source in dict.fromkeys((*self._routes.values(), *self._default)):
            await source.aclose()

    def _route(self, key: str) -> Source | None:
        prefix = key.removeprefix(_PREFIX_RECORDS).partition("/")[0]
        while prefix:
            if prefix in self._routes:
                return self._routes[prefix]
            prefix = prefix.rpartition(".")[0]
        return None


def _most_telling(failures: Sequence[CouldNotVerify]) -> CouldNotVerify:
    not_asked = (BreakerOpen, UpstreamPaused, BudgetSpent, NotInBundle)
    asked = (error for error in failures if not isinstance(error, not_asked))
    return next(asked, failures[0])
