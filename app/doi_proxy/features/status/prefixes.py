"""The prefixes of today's names: those most requested, not registered, or not answered. They are never stored.

A prefix is shown only if more than five networks requested names under it. A number that this service alone can
compute, with a salt of the day, stands for a network. No network, no name and no order of requests is kept for longer
than a second. The workers of a service count together, in a memory that they share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from doi_proxy.sharing.memory import SharedMemory
from doi_proxy.web.stage import Stage

#: What is counted: names, those that are not registered, and those that could not be verified.
PrefixKind = Literal["asked", "missing", "unverified"]
KINDS: Final[tuple[PrefixKind, ...]] = ("asked", "missing", "unverified")
#: A prefix is shown if more networks than this requested it.
MOST_HIDDEN: Final = 5
#: The prefixes that are shown of each kind.
SHOWN: Final = 10
#: The prefixes that are counted of each kind. One more makes the less requested half go.
MAX_PREFIXES: Final = 1_000
#: Requests that wait to be counted, which takes 10 ms with full tables. One more request counts all of them at once.
MAX_WAITING: Final = 600
_DAY: Final = 86_400
_OF_STATUS: Final[dict[int, PrefixKind]] = {404: "missing", 502: "unverified", 503: "unverified", 504: "unverified"}
_PREFIX: Final = re.compile(rb"/(?:api/handles/)?(10\.[0-9][0-9.]{1,20})(?:/|%2[Ff])")


class _Counted(msgspec.Struct, array_like=True):
    names: int = 0
    networks: set[int] = msgspec.field(default_factory=set)


_Tables = dict[PrefixKind, dict[str, _Counted]]


class _Day(msgspec.Struct, array_like=True):
    """What all workers have counted on a day since the epoch, and the salt of that day."""

    number: int
    salt: bytes
    tables: _Tables = msgspec.field(default_factory=dict)


class PrefixCounts(Stage):
    """Counts names by prefix. `client_of` returns the network of an address, `make_salt` random bytes for a day."""

    def __init__(
        self,
        client_of: Callable[[str], str],
        clock: Callable[[], float],
        make_salt: Callable[[], bytes],
        memory: SharedMemory | None = None,
    ) -> None:
        """`clock` is in seconds since the epoch. `memory` is shared by the workers, None for a process alone."""
        self._client_of = client_of
        self._clock = clock
        self._make_salt = make_salt
        self._memory = memory
        #: The salt is empty until this worker has that of the others.
        self._day = _Day(-1, b"")
        #: What this worker has counted and the others do not have yet.
        self._new: _Tables = {}
        #: Requests of the last second, by address, path and status.
        self._waiting: dict[tuple[str, bytes, int], int] = {}

    def count_path(self, address: str, path: bytes, status: int, requests: int) -> None:
        """See Stage."""
        key, waiting = (address, path, status), self._waiting
        try:
            waiting[key] += requests
        except KeyError:
            waiting[key] = requests
            if len(waiting) >= MAX_WAITING:
                self.refresh()

    def refresh(self) -> None:
        """Count what waits. The service calls this every second."""
        self._begin_day()
        salt = self._day.salt
        # Without a salt, at most the requests of the first second of a day are not counted.
        for (address, path, status), requests in self._waiting.items() if salt else ():
            if (found := _PREFIX.match(path)) is None:
                continue
            # The workers are forks, and the hashes of strings are alike in them.
            counted = _Counted(requests, {hash((salt, self._client_of(address)))})
            prefix = found[1].decode()
            _add(self._new, "asked", prefix, counted)
            if (kind := _OF_STATUS.get(status)) is not None:
                _add(self._new, kind, prefix, counted)
        self._waiting.clear()
        if self._new:
            self._share()

    def top(self) -> Mapping[PrefixKind, list[tuple[str, int]]]:
        """The prefixes with most names, and their numbers, of those that enough networks requested."""
        self.refresh()
        self._share()
        return {kind: _find_top(self._day.tables.get(kind, {})) for kind in KINDS}

    def _begin_day(self) -> None:
        number = int(self._clock() // _DAY)
        if number != self._day.number:
            self._day, self._new = _Day(number, b""), {}
        if not self._day.salt:
            self._share()

    def _share(self) -> None:
        """Add what is new to the counts of all workers. It waits for the next call if another worker adds its own."""
        if self._memory is None:
            self._join(self._day if self._day.salt else None)
        else:
            self._memory.change(lambda data: msgspec.msgpack.encode(self._join(_decode(data))))

    def _join(self, known: _Day | None) -> _Day:
        if known is None or known.number != self._day.number:
            known = _Day(self._day.number, self._make_salt())
        if known.salt == self._day.salt:
            for kind, table in self._new.items():
                for prefix, counted in table.items():
                    _add(known.tables, kind, prefix, counted)
        self._day, self._new = known, {}
        return known


def _add(tables: _Tables, kind: PrefixKind, prefix: str, new: _Counted) -> None:
    table = tables.setdefault(kind, {})
    counted = table.get(prefix)
    if counted is None:
        if len(table) >= MAX_PREFIXES:
            kept = sorted(table.items(), key=lambda item: -item[1].names)[: MAX_PREFIXES // 2]
            table = tables[kind] = dict(kept)
        counted = table[prefix] = _Counted()
    counted.names += new.names
    for network in new.networks:
        if len(counted.networks) <= MOST_HIDDEN:
            counted.networks.add(network)


def _find_top(table: Mapping[str, _Counted]) -> list[tuple[str, int]]:
    shown = [(prefix, counted.names) for prefix, counted in table.items() if len(counted.networks) > MOST_HIDDEN]
    return sorted(shown, key=lambda item: (-item[1], item[0]))[:SHOWN]


def _decode(data: bytes) -> _Day | None:
    return msgspec.msgpack.decode(data, type=_Day) if data else None
