"""What the operator says about names, before the cache and the upstream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from doi_names.name import HandleName
from doi_proxy.resolver.resolution import Resolution


class LocalAnswers(Protocol):
    """The operator's own answers."""

    def resolve(self, name: HandleName, now: float) -> Resolution | None:
        """The answer about a name; None if the cache and the upstream decide. Raises PrefixDenied."""

    def find_place(self, name: HandleName, now: float) -> str | None:
        """File and line of the record that answers or denies a name in place of the cache."""

    def find_near(self, key: str, candidates: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
        """The candidates that have a record, and the keys next to `key`: before and after it, the nearest first."""
