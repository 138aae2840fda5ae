"""What the upstream said about a name, when, and to which instance: the ground of every answer of a service."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from contextvars import ContextVar
from math import inf
from typing import Any, Final, NamedTuple, Protocol

from tests.fake_upstream import FakeUpstream, Fault
from tests.simulation.causes import PLACES
from tests.upstream.faults import Asked as Question
from tests.upstream.faults import Peer
from tests.world.world import World

CEILING: Final = 300.0
NEGATIVE: Final = 60.0
GRACE: Final = 900.0


class Word(NamedTuple):
    """What the upstream said about a name: a target, another name, or neither for "not found"."""

    #: The time of the day when it was said, and those of its soft and its hard expiry.
    at: float
    fresh_until: float
    ends: float
    target: str | None
    alias: str | None
    #: The virtual times when it was said, and when the query for it arrived.
    since: float
    asked_at: float
    #: The instance that asked, and whether it asked for the word of a primary server.
    instance: int
    is_authoritative: bool
    #: Seconds by which it may have arrived later.
    late: float = 0.0

    @property
    def is_denial(self) -> bool:
        """Whether it says that the name is not registered."""
        return self.target is None and self.alias is None


class Query(NamedTuple):
    """A query that has arrived. `at` is the virtual time."""

    name: str
    at: float
    instance: int
    is_authoritative: bool


class Listener(Protocol):
    """Hears what an upstream meets and says."""

    def hear_query(self, query: Query, under_way: list[Query]) -> None:
        """A query has arrived, while others are under way."""

    def hear_fault(self, query: Query | None, kind: str, options: dict[str, Any]) -> None:
        """A query meets a fault; None: all that are under way."""

    def hear_answer(self, query: Query) -> None:
        """A query is answered."""


_NOTHING: Final = Query("", 0.0, 0, False)
_CURRENT: Final[ContextVar[Query]] = ContextVar("query", default=_NOTHING)


class Told(FakeUpstream):
    """An upstream that notes its words."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World
        self.listener: Listener
        self.words: defaultdict[str, list[Word]] = defaultdict(list)
        self._under_way: dict[Peer, Query] = {}
        self.versions: dict[str, int] = {}
        self.is_running = False

    async def _answer(self, service: str, asked: Question, writer: Peer) -> bool:
        query = Query(asked.name, self.world.loop.time(), self._find_instance(writer), "auth=true" in asked.target)
        # A query whose connection the client has closed is not in flight any more.
        others = [other for peer, other in self._under_way.items() if not _other_end(peer).is_closing()]
        self.listener.hear_query(query, others)
        self._under_way[writer] = query
        _CURRENT.set(query)
        try:
            return await super()._answer(service, asked, writer)
        finally:
            self._under_way.pop(writer, None)

    def _find_instance(self, writer: Peer) -> int:
        process = _other_end(writer).process
        return 0 if process is None else self.world.machines.index(process.machine)

    def _next_fault(self, key: str) -> Fault | None:
        fault = super()._next_fault(key)
        if fault is not None:
            self.listener.hear_fault(_CURRENT.get(), fault.kind, fault.options)
            if fault.kind in ("denies", "unavailable_but_known"):
                self._say(key, None)
        return fault

    def _handle(self, name: str) -> tuple[int, bytes]:
        status, body = super()._handle(name)
        self._say(name, json.loads(body).get("values"))
        self.listener.hear_answer(_CURRENT.get())
        return status, body

    def delay(self, since: float, by: float) -> None:
        """What was said since a virtual time arrived so much later, or was noted by a clock that was set forward."""
        for words in self.words.values():
            words[:] = [word._replace(late=by) if word.since >= since else word for word in words]

    def drop_connections(self) -> None:
        """See FakeUpstream."""
        if self.is_running:
            self.listener.hear_fault(None, "drop", {})
        super().drop_connections()

    def put_version(self, name: str, ttl: int) -> None:
        """Give a name a target that it never had."""
        version = self.versions[name] = self.versions.get(name, 0) + 1
        self.put(name, url=f"https://example.org/{name}/{version}", ttl=ttl)

    def _say(self, name: str, values: list[Any] | None) -> None:
        now, query = self.world.now(), _CURRENT.get()
        target, alias, fresh_until, grace = None, None, now + NEGATIVE, 0.0
        if values is not None:
            value, grace = values[0]["data"]["value"], GRACE
            fresh_until = now + min(values[0]["ttl"], CEILING)
            target, alias = (None, value) if values[0]["type"] == "HS_ALIAS" else (value, None)
        word = Word(
            now, fresh_until, fresh_until + grace, target, alias, self.world.loop.time(), query.at, query.instance,
            query.is_authoritative,
        )  # fmt: skip
        self.words[name.upper()].append(word)


def _other_end(peer: Peer) -> Any:
    wire: Any = peer.transport
    return wire.other


class Breakers:
    """The breaker of each instance as its upstream sees it: after so many names in a row that failed, one probe comes.

    It is open when no query has arrived for a moment: those that were on their way still come.
    """

    def __init__(self, instances: int, failures: int, cooldown: float, report: Callable[[str, str], None]) -> None:
        self._failures, self._cooldown, self._report = failures, cooldown, report
        #: The names that failed in a row, with the time of the last failure.
        self._failed: list[dict[str, float]] = [{} for _ in range(instances)]
        self._last: list[float] = [0.0] * instances
        #: When the probe of each arrived.
        self._probed: list[float] = [-inf] * instances

    def hear_query(self, query: Query) -> None:
        """A query has arrived."""
        failed, quiet = self._failed[query.instance], query.at - self._last[query.instance]
        is_retry = query.at - failed.get(query.name.upper(), -inf) < _ON_THE_WAY
        # The query about a prefix alone finds out whether the upstream or only names fail.
        if len(failed) < self._failures or is_retry or "/" not in query.name:
            return
        if _ON_THE_WAY < quiet < self._cooldown - _ON_THE_WAY:
            self._report(ONE_PROBE, f"{query.name} is asked {quiet:.1f} s after the last one failed")
        if query.at - self._probed[query.instance] < self._cooldown - _ON_THE_WAY:
            self._report(ONE_PROBE, f"{query.name} is a second probe")
        if quiet > _ON_THE_WAY:
            self._probed[query.instance] = query.at

    def hear_failure(self, query: Query, kind: str, options: dict[str, Any], now: float) -> None:
        """A query meets a fault."""
        failed = self._failed[query.instance]
        if kind not in _BREAKING or options.get("status", 500) != 500 or options.get("retry_after") is not None:
            failed.clear()
            return
        failed[query.name.upper()] = self._last[query.instance] = now
        # In the time of a cooldown, some fail until it opens, others were on their way, and one is the probe.
        recent = sum(at > now - self._cooldown + _ON_THE_WAY for at in failed.values())
        if recent > self._failures + PLACES + 1:
            self._report(ONE_PROBE, f"{recent} names in a row have failed, and the breaker is not open")

    def forget(self, instance: int) -> None:
        """An answer came, or the instance is another process."""
        self._failed[instance].clear()
        self._probed[instance] = -inf


ONE_PROBE: Final = "one probe per cooldown while the breaker is open"
#: Faults of which each counts for the breaker. Timeouts and unreadable answers may be those of a name.
_BREAKING: Final = frozenset({"reset", "close", "status"})
#: Seconds within which a query that was sent arrives, and its failure is known.
_ON_THE_WAY: Final = 1.0
