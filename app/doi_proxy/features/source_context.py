"""What the source of a feature is opened with, besides the settings and its URL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from doi_proxy.cache.tiered import TieredStore
from doi_proxy.resolver.resolution import TtlPolicy
from doi_proxy.upstream.budget import Budget


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The parts that a source may use. `clock` returns seconds since the epoch."""

    #: Every message after the first one of a query takes a token of it.
    budget: Budget
    #: Keeps the records that lead to servers.
    cache: TieredStore
    policy: TtlPolicy
    clock: Callable[[], float]
    #: Observes the messages of the source. Its type is the feature's.
    observer: Any = None
