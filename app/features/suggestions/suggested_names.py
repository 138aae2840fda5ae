"""The names that an answer suggests: those that exist first, those that do not exist never."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.doi.name import HandleName
from app.features.suggestions.existence import Existence
from app.features.suggestions.suggestion import Suggestion, suggest, suggest_instead
from app.web.section import PageKind


class SuggestedNames:
    """`own_hosts` are the hosts of this resolver, as `app.features.suggestions.suggestion.suggest` expects them."""

    def __init__(self, existence: Existence, own_hosts: frozenset[str]) -> None:
        self._existence = existence
        self._own_hosts = own_hosts

    def for_name(self, name: HandleName) -> list[Suggestion]:
        """What is suggested for a name that does not exist, by what memory knows."""
        return self._sort(suggest_instead(name, own_hosts=self._own_hosts))

    def for_text(self, text: str) -> list[Suggestion]:
        """What is suggested for a text that is not a name, by what memory knows."""
        return self._sort(suggest(text, own_hosts=self._own_hosts))

    async def prepare(self, name: HandleName, client: str | None) -> None:
        """Find out which of the names that `for_name` suggests exist, at the cost of `client`, a network."""
        names = [found.doi for found in suggest_instead(name, own_hosts=self._own_hosts)]
        await self._existence.look_up(names, client)

    def read(self, kind: PageKind, name: HandleName | None, text: str) -> Mapping[str, Any]:
        """The member `suggestions`: of a page the names, of a problem also the rule of each."""
        found = self.for_text(text) if name is None else self.for_name(name)
        if kind != "problem":
            return {"suggestions": [suggestion.doi for suggestion in found]}
        rows = [{"doi": suggestion.doi.text, "rule": suggestion.rule} for suggestion in found]
        return {"suggestions": rows} if rows else {}

    def _sort(self, suggestions: Iterable[Suggestion]) -> list[Suggestion]:
        states = [(found, self._existence.find(found.doi)) for found in suggestions]
        registered = [found for found, exists in states if exists]
        return registered + [found for found, exists in states if exists is None]
