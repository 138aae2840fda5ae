"""The invariants of a simulation: what its clients and its upstream saw. Nothing of the program is read.

They compare answers with the upstream's words: what it said about a name, and when.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple

from tests.fake_upstream import FakeUpstream, Fault
from tests.simulation.causes import AFTERMATH, BURST, PLACES, RATE, Causes
from tests.simulation.history import PATIENT, Request
from tests.simulation.incidents import Incidents
from tests.upstream.faults import Asked as Question
from tests.upstream.faults import Peer
from tests.world.answer import Reply
from tests.world.client import ORIGIN
from tests.world.world import World

CEILING: Final = 300.0
NEGATIVE: Final = 60.0
GRACE: Final = 900.0
#: Seconds within which every request is answered: 8 for its queries, and what the writing takes.
DEADLINE: Final = 9.0
BUDGET: Final = "never more queries a second than the budget"
#: While the store fails for some of the processes and works for others, the parts of the former come on top
#: (docs/valkey.md, "The budget").
BUDGET_APART: Final = "never more queries a second than the budget and its parts, while only some have the store"
ONE_QUESTION: Final = "one question for a name at a time"
ANSWERED_AGAIN: Final = "what was answered is answered again"
#: What was answered while the store failed, all workers answer after its return.
MISSED: Final = "what the store missed while it was away, it gets when it is back"
#: No worker that lives.
NO_WORKER: Final = -1
#: While the store cannot be written, each process has what it learned alone (docs/caching.md, "The stores").
OTHER_WORKER: Final = "what one worker answered, the others answer too"
#: What a worker answered before the store lost its data, it answers again.
LOST: Final = "what a worker answered is answered again by it, also after the store has lost its data"
#: Tokens that workers may take from a shared budget before they spend them (assembly/allotment.py), and rounding.
_EARLY_TOKENS: Final = RATE * 0.1 + 1e-3
#: When a request began is a difference of two times. One that began at the moment of an answer did not come after it.
_ROUNDING: Final = 1e-6
#: Seconds of a lease.
LEASE: Final = 1.5
#: Seconds by which the clock of the store's server is set back at least, when its announcements begin anew: a minute,
#: in one step or in two (docs/valkey.md, "The budget").
_BEGINS_ANEW: Final = 30.0
#: Seconds in which every worker reads the announcements.
_ANNOUNCED: Final = 2.0
#: Seconds for which a process repeats a refusal without a look into the store (docs/performance.md).
_REPEATED: Final = 1.0
#: Seconds after which an answer is in the file of the store.
WRITE_SECONDS: Final = 2.0
#: The end of the line about a damaged file that was renamed.
_RENAMED: Final = "and an empty store was created."
#: Seconds between an upstream's word and the time that the program notes for it.
_ON_THE_WAY: Final = 10.0
#: How far the clock may be set back with the entries kept.
_SKEW: Final = 50.0


#: Connections of a client that are no more than its share at the cap.
_FEW_CONNECTIONS: Final = 30
_CONTROL: Final = "0.NA/10"
#: Refusals because of what other clients do.
_OF_OTHERS: Final = frozenset({"budget-spent", "places-full", "upstream-slow", "share-spent", "rate-exceeded"})


class Broken(AssertionError):
    """An invariant does not hold. `invariant` is its name."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        #: The steps until then.
        self.steps = 0


@dataclass(frozen=True, slots=True)
class Word:
    """What the upstream said about a name at a time of the day: a target, another name, or None for "not found"."""

    at: float
    ends: float
    target: str | None
    alias: str | None = None
    #: The virtual time.
    since: float = 0.0


class Told(FakeUpstream):
    """An upstream that notes its words and counts its queries, as seen from its side."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World
        self.judge: Judge
        self.words: defaultdict[str, list[Word]] = defaultdict(list)
        self.under_way: dict[Peer, str] = {}
        self.versions: dict[str, int] = {}
        self.is_running = False

    async def _answer(self, service: str, asked: Question, writer: Peer) -> bool:
        # A query whose connection the client has closed is not in flight any more.
        self.judge.query(asked.name, [name for peer, name in self.under_way.items() if not _is_closed(peer)])
        self.under_way[writer] = asked.name
        try:
            return await super()._answer(service, asked, writer)
        finally:
            self.under_way.pop(writer, None)

    def _next_fault(self, key: str) -> Fault | None:
        fault = super()._next_fault(key)
        if fault is not None:
            self.judge.causes.note_fault(fault.kind, fault.options)
        if fault is not None and fault.kind == "unavailable_but_known":
            self._say(key, None)
        return fault

    def _handle(self, name: str) -> tuple[int, bytes]:
        status, body = super()._handle(name)
        self._say(name, json.loads(body).get("values"))
        return status, body

    def drop_connections(self) -> None:
        """See FakeUpstream."""
        if self.is_running:
            self.judge.causes.note_fault("drop", {})
        super().drop_connections()

    def _say(self, name: str, values: list[Any] | None) -> None:
        now, since = self.world.now(), self.world.loop.time()
        if values is None:
            word = Word(now, now + NEGATIVE, None, since=since)
        else:
            value, ttl = values[0]["data"]["value"], min(values[0]["ttl"], CEILING)
            is_alias = values[0]["type"] == "HS_ALIAS"
            word = Word(now, now + ttl + GRACE, None if is_alias else value, value if is_alias else None, since)
        self.words[name.upper()].append(word)


class Learned(NamedTuple):
    """What a client was told."""

    #: When the upstream said so, by the clock and in virtual time, and until when it is valid.
    at: float
    since: float
    ends: float
    #: The virtual time of the first answer.
    known_at: float


_NOTHING: Final = Learned(0.0, 0.0, 0.0, 0.0)


def _read_target(reply: Reply) -> str | None:
    if reply.status == 302:
        return reply.location
    if reply.status == 200 and (reply["content-type"] or "").startswith("application/json"):
        values = reply.json.get("values") or [{"type": ""}]
        return str(values[0]["data"]["value"]) if values[0]["type"] == "URL" else None
    return None


def _find_word(said: Sequence[Word], before: Learned, asked_at: float, *, is_new: bool) -> Word:
    """The word that an answer stands on, of those with its target. One from the cache may stand on an old one."""
    if is_new:
        return said[-1]
    known = [word for word in said if word.at == before.at]
    return next(iter([*known, *(word for word in said if asked_at <= word.ends), said[-1]]))


def _is_closed(peer: Peer) -> bool:
    wire: Any = peer.transport
    return bool(wire.other.is_closing())


@dataclass
class Judge:
    """The invariants."""

    world: World
    upstream: Told
    answered: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    #: The rows of lists, by verdict.
    rows: Counter[str] = field(default_factory=Counter)
    #: The requests under way of each client.
    busy: Counter[int] = field(default_factory=Counter)
    #: Until when a crowd comes and goes. A client with more connections than others may lose some.
    _crowded_until: float = -inf
    #: What happened besides the requests, by its name in a history.
    happened: Counter[str] = field(default_factory=Counter)
    #: What broke first.
    _broken: Broken | None = None
    _tokens: float = BURST
    _tokens_at: float = 0.0
    #: The tokens of the parts of the budget that processes have while the store fails.
    _parts: float = 0.0
    #: By name, what a client was told last.
    _known: dict[str, Learned] = field(default_factory=dict)
    #: The worker that answered a name first, by name.
    _worker: dict[str, int] = field(default_factory=dict)
    workers: int = 1
    #: Whether no worker evicts an entry from its memory.
    memory_has_all: bool = True
    #: Answers since this virtual time are lost in a crash.
    unwritten_since: float = inf
    #: The virtual times between which the store missed what was answered.
    _missed: list[tuple[float, float]] = field(default_factory=list)
    #: The virtual time until which workers could not read the store.
    _silent_until: float = -inf
    #: The virtual time until which a query can be under way without a lease of the store: the clock of its server was
    #: set, the query began while the store failed, or the store lost its data.
    _unleased_until: float = -inf
    #: The virtual time at which the clock was set back.
    _set_back_at: float = -inf
    #: What was answered until this virtual time can be in no worker's memory: the announcements began anew.
    _dropped_until: float = -inf
    #: The virtual time at which the store lost its data.
    _lost_at: float = -inf
    #: How many lines of the log were searched for a damaged file.
    _lines_read: int = 0
    #: The seconds between the virtual time and the time of the day, and since when.
    _offsets: list[tuple[float, float]] = field(default_factory=list)
    _digest: Any = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        self.causes = Causes(self.world.loop.time)
        self.incidents = Incidents(self.causes, self.report, workers=self.workers)
        self._offsets.append((0.0, self.world.now() - self.world.loop.time()))

    @property
    def digest(self) -> str:
        """A checksum of all answers and queries, with their times."""
        return str(self._digest.hexdigest())

    def report(self, invariant: str, detail: str) -> None:
        """An invariant does not hold."""
        if self._broken is None:
            self._broken = Broken(invariant, f"{detail}, at {self.world.loop.time():.3f} s")

    # The upstream's side

    def query(self, name: str, under_way: Sequence[str]) -> None:
        """A query has arrived."""
        now = self.world.loop.time()
        self._digest.update(f"? {now:.6f} {name}\n".encode())
        self._look()
        self.causes.note_query()
        is_apart = self.workers > 1 and self.unwritten_since < inf
        gained = (now - self._tokens_at) * RATE
        self._tokens = min(BURST, self._tokens + gained) - 1.0
        self._parts = min(BURST, self._parts + gained) if is_apart else 0.0
        self._tokens_at = now
        if self._tokens < -_EARLY_TOKENS and self._parts >= 1.0:
            self._tokens, self._parts = self._tokens + 1.0, self._parts - 1.0
        elif self._tokens < -_EARLY_TOKENS:
            self.report(BUDGET_APART if is_apart else BUDGET, f"{name} is one too many")
            # It is told once.
            self._tokens = -_EARLY_TOKENS
        if len(under_way) >= PLACES:
            self.report("never more queries in flight than the budget", f"{len(under_way) + 1} are in flight")
        # Without the store, no process knows what the others ask. The control query of each concerns no client.
        is_alone = self.unwritten_since < inf or name == _CONTROL or now < self._unleased_until
        most = self.workers if is_alone else 1
        if [asked.upper() for asked in under_way].count(name.upper()) >= most:
            self.report(ONE_QUESTION, f"{name} is asked {most + 1} times")

    def _look(self) -> None:
        """Read the log. While the store fails, each worker has a share of the budget."""
        if self.unwritten_since < inf:
            self.causes.doubt()
        if any(line.endswith(_RENAMED) for line in self.world.log[self._lines_read :]):
            # A start finds damage of a page that no process had read. The empty file gets what the living workers have
            # in memory, and nothing else.
            self._known = {name: known for name, known in self._known.items() if self._worker[name] != NO_WORKER}
        self._lines_read = len(self.world.log)
        self.incidents.read(self.world.log, self.world.loop.time())

    # The clients' side

    def stop_service(self) -> None:
        """The service is stopped, and perhaps starts with an empty budget."""
        self._look()
        self.causes.doubt()

    def start_service(self) -> None:
        """The service was started anew."""
        self.incidents.start(self.world.log)

    def end_service(self, *, is_stored: bool) -> None:
        """The service was killed: what was not written is lost. A budget without a store is full again."""
        self._tokens = self._tokens if is_stored else BURST
        written = min(self.unwritten_since, self.world.loop.time() - WRITE_SECONDS) if is_stored else 0.0
        self._known = {name: known for name, known in self._known.items() if known.known_at < written}
        self.end_memories()

    def end_memories(self) -> None:
        """All workers have ended: what is known is in the store."""
        self._worker = dict.fromkeys(self._worker, NO_WORKER)

    def end_worker(self, worker: int, *, is_stored: bool) -> None:
        """A worker was killed: what it alone had is lost."""
        self._look()
        self.causes.doubt()
        self.incidents.start(self.world.log, is_killed=True)
        if not is_stored:
            self.end_service(is_stored=False)
            return
        written = min(self.unwritten_since, self.world.loop.time() - WRITE_SECONDS)
        for name, known in list(self._known.items()):
            if self._worker[name] == worker:
                self._worker[name] = NO_WORKER
                if known.since >= written or known.since <= self._lost_at:
                    del self._known[name]

    def begin_outage(self, *, is_silent: bool = False) -> None:
        """The store fails from now on. A silent one cannot be read either."""
        now = self.world.loop.time()
        self.unwritten_since = now - WRITE_SECONDS
        if now < self._dropped_until:
            self._dropped_until = inf
        if is_silent:
            self._silent_until = inf

    def end_outage(self) -> None:
        """The store has had the time to get what it missed."""
        now = self.world.loop.time()
        self._missed.append((self.unwritten_since, now))
        self.unwritten_since = inf
        # The queries that began meanwhile have leases of their processes (docs/caching.md).
        self._unleased_until = max(self._unleased_until, now + DEADLINE)
        self._silent_until = min(self._silent_until, now)
        self._dropped_until = min(self._dropped_until, now + _ANNOUNCED)

    def crowd(self, seconds: float) -> None:
        """A crowd of clients comes and goes for so many seconds."""
        self._crowded_until = self.world.loop.time() + seconds

    def lose_store(self) -> None:
        """The store has lost its data, and with it the leases. What a worker answered before is in its memory alone."""
        self._lost_at = self.world.loop.time()
        self._unleased_until = max(self._unleased_until, self._lost_at + DEADLINE)

    def forget(self, name: str) -> None:
        """A name was purged, so its answer may be lost."""
        self._known.pop(name.upper(), None)

    def set_clock(self, by: float) -> None:
        """The clock of a machine was set. Set back, answers may count as from the future."""
        now = self.world.loop.time()
        self._offsets.append((now, self.world.now() - now))
        if by < 0:
            self._known.clear()
            self._set_back_at = now

    def set_server_clock(self, by: float) -> None:
        """The clock of the store's server was set: it can end leases, and fill the bucket (docs/valkey.md)."""
        now = self.world.loop.time()
        self.causes.doubt()
        if by <= -_BEGINS_ANEW:
            self._dropped_until = inf if self.unwritten_since < inf else now + _ANNOUNCED
        if abs(by) > LEASE / 3:  # it was renewed a third of it ago at most
            self._unleased_until = max(self._unleased_until, now + DEADLINE)
        self._tokens = min(BURST, self._tokens + max(0.0, by) * RATE)

    def note_list(self, reply: Reply, rows: Sequence[Any]) -> None:
        """Count the rows of a list."""
        self.rows.update(row.get("verdict", "error") for row in rows)
        self._digest.update(f"! {self.world.now():.6f} {reply.status} ".encode() + reply.body)

    def earliest(self, began: float) -> float:
        """The earliest time of the day since this virtual time."""
        before = [offset for at, offset in self._offsets if at <= began]
        return began + min([before[-1], *(offset for at, offset in self._offsets if at > began)])

    def reply(self, request: Request, answer: asyncio.Future[Reply]) -> None:
        """A request has ended."""
        name = request.name
        if answer.cancelled():
            return
        if answer.exception() is not None:
            is_crowded = self.world.loop.time() < self._crowded_until
            # At the cap, a head that is not whole is closed too (docs/operations.md).
            is_first_to_go = self.busy[request.client] >= _FEW_CONNECTIONS or request.dawdles_for > 0.0
            if not (is_crowded and is_first_to_go):
                self.report("every request is answered", f"{name}: {answer.exception()}")
            return
        reply, now = answer.result(), self.world.now()
        self.answered += 1
        self.statuses[reply.status] += 1
        self._digest.update(f"! {now:.6f} {name} {reply.status} {reply.location}\n".encode())
        asked_at = self.earliest(self.world.loop.time() - reply.seconds)
        if reply.seconds > DEADLINE:
            self.report("every request is answered within its deadline", f"{name} took {reply.seconds:.1f} s")
        target = _read_target(reply)
        if target is not None:
            self._check_target(request, reply, target, asked_at)
        elif reply.status == 301:
            self._check_alias(name, reply)
        elif reply.status == 404:
            self.check_not_found(name, asked_at)
        elif reply.status >= 429 and request.directive is None:
            self.check_known(name, request.client, str(reply.status), self.world.loop.time() - reply.seconds)
        if reply.status >= 429:
            self._check_cause(request, reply)

    def _words(self, name: str) -> list[Word]:
        """All words about a name and those that it stands for."""
        words = self.upstream.words[name.upper()]
        return words + [more for word in words if word.alias for more in self.upstream.words[word.alias.upper()]]

    def find_words(self, name: str, target: str, asked_at: float) -> list[Word]:
        """The words on which an answer with a target can stand. Judges one without such a word, and an old one."""
        said = [word for word in self._words(name) if word.target == target]
        if not said:
            self.report("never another name's target", f"{name} leads to {target}")
        elif asked_at > (ends := max(word.ends for word in said)) + _ON_THE_WAY:
            self.report("never an answer past its grace", f"{name}: {target} ended {asked_at - ends:.0f} s ago")
        return said

    def _check_target(self, request: Request, reply: Reply, target: str, asked_at: float) -> None:
        name = request.name
        # An entry from before the clock was set back has no times to rely on.
        said = [word for word in self.find_words(name, target, asked_at) if word.since >= self._set_back_at]
        if said and not name.startswith("10.5555/alias"):
            before = self._known.get(name.upper(), _NOTHING)
            last = _find_word(said, before, asked_at, is_new="; fwd=" in (reply["cache-status"] or ""))
            is_known = before.at == last.at
            known_at = before.known_at if is_known else self.world.loop.time()
            self._known[name.upper()] = Learned(last.at, last.since, last.ends, known_at)
            if not is_known:
                self._worker[name.upper()] = request.client % self.workers

    def _check_alias(self, name: str, reply: Reply) -> None:
        leads_to = (reply.location or "").partition(f"{ORIGIN}/")[2]
        if leads_to not in [word.alias for word in self.upstream.words[name.upper()]]:
            self.report("never another name's target", f"{name} stands for {reply.location}")

    def check_not_found(self, name: str, asked_at: float) -> None:
        """Judge an answer that a name is not registered."""
        said = [word for word in self._words(name) if word.target is None and word.alias is None]
        if not said:
            self.report("never 'not found' without the upstream's word", name)
        elif asked_at > max(word.ends for word in said) + _ON_THE_WAY:
            self.report("never an old 'not found'", f"{name}: {asked_at - said[-1].at:.0f} s old")
        self.forget(name)

    def check_known(self, name: str, client: int, failure: str, began: float) -> None:
        """Judge a failure: what was answered before the request began is answered again."""
        self._look()
        key, now = name.upper(), self.world.now()
        known = self._known.get(key, _NOTHING)
        if not (known.at - _SKEW <= now <= known.ends - _ON_THE_WAY and 0.0 < known.known_at < began - _ROUNDING):
            return
        is_apart = self._worker[key] != client % self.workers or known.known_at <= self._dropped_until
        is_repeated = self.world.loop.time() - began < _ROUNDING and began < known.known_at + _REPEATED
        is_unread = is_repeated or known.since <= self._lost_at or began <= self._silent_until
        invariant = ANSWERED_AGAIN
        if not is_apart:
            if known.since <= self._lost_at:
                invariant = LOST
                # Memory evicts what it has no room for.
                if not self.memory_has_all:
                    return
        elif known.known_at >= self.unwritten_since or is_unread:
            return
        elif ends := [end for begin, end in self._missed if begin <= known.since <= end]:
            invariant = MISSED
            if began <= max(ends):
                return
        elif began < known.known_at + WRITE_SECONDS:
            invariant = OTHER_WORKER
        self.report(invariant, f"{name}: {failure}, {known.ends - now:.0f} s are left")

    def _check_cause(self, request: Request, reply: Reply) -> None:
        self._look()
        began = self.world.loop.time() - reply.seconds
        token = (reply["proxy-status"] or "").partition('details="')[2].rstrip('"')
        if objection := self.causes.find_objection(token, began):
            self.report(objection[0], f"{request.name}: {reply.status}, {objection[1]}")
        if request.client >= PATIENT and token in _OF_OTHERS and self.causes.is_calm(began - AFTERMATH):
            self.report("a client alone is never refused for what others do", f"{request.name}: {token}")

    def check(self) -> None:
        """Raise what was broken first."""
        self._look()
        if self._broken is not None:
            raise self._broken
