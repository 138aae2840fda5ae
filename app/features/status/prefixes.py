"""The prefixes of today's names: those most requested, not registered, or not answered. They are never stored.

A prefix is shown only if more than five networks requested names under it. A number that this process alone can
compute, with a salt of the day, stands for a network. No network, no name and no order of requests is kept for longer
than a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from app.web.stage import Stage

#: What is counted: names, those that are not registered, and those that could not be verified.
PrefixKind = Literal["asked", "missing", "unverified"]
KINDS: Final[tuple[PrefixKind, ...]] = ("asked", "missing", "unverified")
#: A prefix is shown if more networks than this requested it.
MOST_HIDDEN: Final = 5
#: The prefixes that are shown of each kind.
SHOWN: Final = 10
#: The prefixes that are counted of each kind. One more makes the less requested half go.
MAX_PREFIXES: Final = 1_000
#: Requests that wait to be counted, which takes 10 ms. One more makes all of them be counted immediately.
MAX_WAITING: Final = 1_000
_DAY: Final = 86_400
_OF_STATUS: Final[dict[int, PrefixKind]] = {404: "missing", 502: "unverified", 503: "unverified", 504: "unverified"}
_PREFIX: Final = re.compile(rb"/(?:api/handles/)?(10\.[0-9][0-9.]{1,20})(?:/|%2[Ff])")


@dataclass(slots=True)
class _Counted:
    names: int = 0
    networks: set[int] = field(default_factory=set)


class PrefixCounts(Stage):
    """Counts names by prefix. `client_of` returns the network of an address, `make_salt` random bytes for a day."""

    def __init__(
        self, client_of: Callable[[str], str], clock: Callable[[], float], make_salt: Callable[[], bytes]
    ) -> None:
        """`clock` is in seconds since the epoch."""
        self._client_of = client_of
        self._clock = clock
        self._make_salt = make_salt
        self._day, self._salt = -1, b""
        self._tables: dict[PrefixKind, dict[str, _Counted]] = {}
        #: Requests of the last second, by address, path and status.
        self._waiting: dict[tuple[str, bytes, int], int] = {}

    def count_path(self, address: str, path: bytes, status: int, requests: int) -> None:
        """See Stage."""
        key = address, path, status
        self._waiting[key] = self._waiting.get(key, 0) + requests
        if len(self._waiting) >= MAX_WAITING:
            self.refresh()

    def refresh(self) -> None:
        """Count what waits. The service calls this every second."""
        self._begin_day()
        for (address, path, status), requests in self._waiting.items():
            if (found := _PREFIX.match(path)) is None:
                continue
            prefix, network = found[1].decode(), hash((self._salt, self._client_of(address)))
            self._add("asked", prefix, network, requests)
            if (kind := _OF_STATUS.get(status)) is not None:
                self._add(kind, prefix, network, requests)
        self._waiting.clear()

    def top(self, kind: PrefixKind) -> list[tuple[str, int]]:
        """The prefixes with most names, and their numbers, of those that enough networks requested."""
        self.refresh()
        counted = self._tables.get(kind, {}).items()
        shown = [(prefix, one.names) for prefix, one in counted if len(one.networks) > MOST_HIDDEN]
        return sorted(shown, key=lambda one: (-one[1], one[0]))[:SHOWN]

    def _begin_day(self) -> None:
        day = int(self._clock() // _DAY)
        if day != self._day:
            self._day, self._salt, self._tables = day, self._make_salt(), {}

    def _add(self, kind: PrefixKind, prefix: str, network: int, requests: int) -> None:
        table = self._tables.setdefault(kind, {})
        counted = table.get(prefix)
        if counted is None:
            if len(table) >= MAX_PREFIXES:
                kept = sorted(table.items(), key=lambda one: -one[1].names)[: MAX_PREFIXES // 2]
                table = self._tables[kind] = dict(kept)
            counted = table[prefix] = _Counted()
        counted.names += requests
        if len(counted.networks) <= MOST_HIDDEN:
            counted.networks.add(network)
