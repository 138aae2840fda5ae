"""The invariants of a simulation: what its clients and its upstream saw. Nothing of the program is read.

They compare answers with the upstream's words: what it said about a name, when, and to which instance.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple

from tests.simulation.causes import AFTERMATH, BURST, PLACES, RATE, Causes
from tests.simulation.history import ALIASES, LISTED, NAMES, PATIENT, Request
from tests.simulation.incidents import Incidents
from tests.simulation.words import CEILING, Breakers, Query, Told, Word
from tests.world.answer import Reply
from tests.world.client import ORIGIN
from tests.world.world import World

#: Seconds within which every request is answered: 8 for its queries, and what the writing takes.
DEADLINE: Final = 9.0
BUDGET: Final = "never more queries a second than the budget"
HALF: Final = "lists leave half of the budget to people"
ONE_QUESTION: Final = "an instance asks one question about a name at a time"
ASKED_ONCE: Final = "an instance asks once for each TTL"
ANSWERED_AGAIN: Final = "what an instance answered, it answers again"
#: What was answered while the store failed, all instances answer after its return.
MISSED: Final = "what the store missed while it was away, it gets when it is back"
OTHERS: Final = "what one instance answered, the others answer too"
FRESH: Final = "an answer is fresh, or it says why it is not"
NUMBERS: Final = "the numbers of an answer are those of the upstream's word"
PURGED: Final = "purged is gone in every instance within two seconds"
CHANGED: Final = "a changed target that one instance learned is the answer of the others within two seconds"
DENIED: Final = "one 'not found' that contradicts a known record is not a word"
TWINS: Final = "prepared and unprepared answers are the same"
DEAD_END: Final = "an alias of a name that is gone leads nowhere"
#: The upstream's breaker, as the settings of the simulation have it.
FAILURES, COOLDOWN = 10, 15.0
#: Tokens that are spent early: rounding, and the queries that latency brings together.
_EARLY_TOKENS: Final = 1.5
#: When a request began is a difference of two times. One that began at the moment of an answer did not come after it.
_ROUNDING: Final = 1e-6
#: Seconds in which every instance reads what the others have put into the store.
ANNOUNCED: Final = 2.0
#: Seconds for which a process repeats a refusal without a look into the store (docs/performance.md).
_REPEATED: Final = 1.0
#: Seconds after which an answer is in the file of the store.
WRITE_SECONDS: Final = 2.0
#: The end of the line about a damaged file that was renamed.
_RENAMED: Final = "and an empty store was created."
#: Seconds between an upstream's word and the time that the program notes for it, in a slow answer; in a quick one, with
#: the seconds by which two whole numbers differ from their times.
_ON_THE_WAY: Final = 10.0
_QUICK: Final = 2.5
#: Seconds in which all arrives that was sent while a link was cut.
_FLUSHED: Final = 0.3
#: How far the clock may be set back with the entries kept.
_SKEW: Final = 50.0
#: Seconds for which a query can wait for its turn: that of a list.
_LONGEST_WAIT: Final = 30.0
#: The last part of a lifetime, in which a record may be fetched anew.
_REFRESHED: Final = 0.1
#: Connections of a client that are no more than its share at the cap.
_FEW_CONNECTIONS: Final = 30
#: Refusals because of what other clients do.
_OF_OTHERS: Final = frozenset({"budget-spent", "places-full", "upstream-slow", "share-spent", "rate-exceeded"})
_HIT: Final = re.compile(r"doi-proxy; hit; ttl=(-?[0-9]+)$")
_FROM_CACHE: Final = re.compile(r"doi-proxy; hit; ttl=(-?[0-9]+)")
_SECONDS: Final = re.compile(r"(?<=ttl=)-?[0-9]+|(?<=max-age=)[0-9]+")
_DETAIL: Final = re.compile(r"; detail=([a-z-]+)")


class Broken(AssertionError):
    """An invariant does not hold. `invariant` is its name."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        #: The steps until then.
        self.steps = 0


class Learned(NamedTuple):
    """What an instance answered about a name, and stands on. `at` is the virtual time of the first such answer."""

    word: Word
    at: float
    instance: int


class Purge(NamedTuple):
    """A purge: the virtual times when it was sent and when it was answered, and the instance that got it."""

    sent_at: float
    at: float
    instance: int


def _read_target(reply: Reply) -> tuple[str | None, str | None]:
    """The target and the alias that an answer names."""
    if reply.status == 302:
        return reply.location, None
    if reply.status == 301:
        return None, (reply.location or "").partition(f"{ORIGIN}/")[2]
    if reply.status == 200 and (reply["content-type"] or "").startswith("application/json"):
        value = (reply.json.get("values") or [{"type": "", "data": {"value": ""}}])[0]
        text = str(value["data"]["value"])
        return (text, None) if value["type"] == "URL" else (None, text) if value["type"] == "HS_ALIAS" else (None, None)
    return None, None


def _without_times(name: str, value: str) -> tuple[str, str]:
    return name, "" if name in ("date", "server", "expires", "age") else _SECONDS.sub("", value)


@dataclass
class Judge:
    """The invariants."""

    world: World
    upstream: Told
    instances: int = 1
    #: Whether no instance evicts an entry from its memory.
    memory_has_all: bool = True
    answered: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    #: The rows of lists, by verdict.
    rows: Counter[str] = field(default_factory=Counter)
    #: The requests under way of each client.
    busy: Counter[int] = field(default_factory=Counter)
    #: What happened besides the requests, by its name in a history.
    happened: Counter[str] = field(default_factory=Counter)
    #: Seconds for which a process stands still.
    stall: float = 0.0
    #: Queries beyond the budget that instances send together.
    raced: int = 0
    #: The longest time of a message in the network, in seconds.
    latency: float = 0.0
    #: Whether a write to the store looks for a purge first, and a purge between the two is overlooked.
    looks_first: bool = False
    #: Answers since this virtual time are lost in a crash.
    unwritten_since: float = inf
    #: The virtual time of the last query about each name.
    _asked: defaultdict[str, float] = field(default_factory=lambda: defaultdict(lambda: -inf))
    #: When the last queries about names of people arrived.
    _arrived: deque[float] = field(default_factory=lambda: deque(maxlen=PLACES))
    #: What broke first.
    _broken: Broken | None = None
    _tokens: float = BURST
    _tokens_at: float = 0.0
    #: By name: what a client was answered last by each instance, and the newest word that an instance fetched.
    _known: dict[str, dict[int, Learned]] = field(default_factory=lambda: defaultdict(dict))
    _newest: dict[str, Learned] = field(default_factory=dict)
    _purges: dict[str, Purge] = field(default_factory=dict)
    #: The virtual time of the last request past the cache, by name.
    _bypassed: dict[str, float] = field(default_factory=dict)
    #: The tags of bodies.
    _tags: dict[tuple[str, str], bytes] = field(default_factory=dict)
    #: The virtual times between which the store missed what was answered.
    _outages: list[tuple[float, float]] = field(default_factory=list)
    #: The virtual time since which an instance runs.
    _started_at: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    #: The virtual time until which instances could not read the store.
    _silent_until: float = -inf
    #: Until when a crowd comes and goes. A client with more connections than others may lose some.
    _crowded_until: float = -inf
    #: The virtual times at which the clock was set back, and at which the store lost its data.
    _set_back_at: float = -inf
    _lost_at: float = -inf
    _cut_at: float = -inf
    _mended_at: float = -inf
    #: The virtual time of the upstream's last answer.
    _heard_at: float = -inf
    #: How far the clock of a machine is from that of the world.
    skew: float = 0.0
    #: How many lines of the log were searched for a damaged file.
    _lines_read: int = 0
    #: The seconds between the virtual time and the time of the day, and since when.
    _offsets: list[tuple[float, float]] = field(default_factory=list)
    _digest: Any = field(default_factory=hashlib.sha256)

    def __post_init__(self) -> None:
        self.causes = Causes(self._now, self.instances, is_counted=self.raced > 0)
        self.incidents = Incidents(self.causes, self.report, instances=self.instances)
        self._breakers = Breakers(self.instances, FAILURES, COOLDOWN, self.report)
        self._offsets.append((0.0, self.world.now() - self._now()))

    def _now(self) -> float:
        return self.world.loop.time()

    @property
    def digest(self) -> str:
        """A checksum of all answers and queries, with their times."""
        return str(self._digest.hexdigest())

    def report(self, invariant: str, detail: str) -> None:
        """An invariant does not hold."""
        if self._broken is None:
            self._broken = Broken(invariant, f"{detail}, at {self._now():.3f} s")

    def check(self) -> None:
        """Raise what was broken first."""
        self._look()
        if self._broken is not None:
            raise self._broken

    # --- The upstream's side ---------------------------------------------------------------------------------------

    def hear_query(self, query: Query, under_way: list[Query]) -> None:
        """See Listener."""
        self._digest.update(f"? {query.at:.6f} {query.name}\n".encode())
        self._look()
        if query.at - self._mended_at < _FLUSHED:
            return  # it was sent before
        self.causes.note_query(query.instance)
        self._tokens = min(BURST, self._tokens + (query.at - self._tokens_at) * RATE) - 1.0
        self._tokens_at = query.at
        if self._tokens < -_EARLY_TOKENS - self.raced:
            self.report(BUDGET, f"{query.name} is one too many")
        is_first, self._asked[query.name] = query.at - self._asked[query.name] > DEADLINE, query.at
        is_listed = query.name in LISTED and is_first  # a second attempt needs any token
        # It may have opened a connection, which takes three messages, while queries of people overtook it on others.
        left = self._tokens + sum(at > query.at - 3 * self.latency for at in self._arrived)
        if is_listed and self.instances == 1 and left < BURST / 2 - 1.0 - _EARLY_TOKENS:
            self.report(HALF, f"{query.name} leaves {left:.1f} tokens")
        if query.name not in LISTED:
            self._arrived.append(query.at)
        if len(under_way) >= PLACES:
            self.report("never more queries in flight than the budget", f"{len(under_way) + 1} are in flight")
        if any((other.name.upper(), other.instance) == (query.name.upper(), query.instance) for other in under_way):
            self.report(ONE_QUESTION, f"{query.name} is asked twice by instance {query.instance}")
        self._breakers.hear_query(query)
        self._check_needed(query)

    def hear_fault(self, query: Query | None, kind: str, options: dict[str, Any]) -> None:
        """See Listener."""
        self.causes.note_fault(kind, options)
        # One that was sent before a link was mended, the instance has given up.
        if query is not None and query.at - self._mended_at >= _FLUSHED:
            self._breakers.hear_failure(query, kind, options, self._now())

    def hear_answer(self, query: Query) -> None:
        """See Listener."""
        self._breakers.forget(query.instance)
        self._heard_at = self._now()

    def _check_needed(self, query: Query) -> None:
        """Judge a query about a name of which its instance has a fresh record."""
        key = query.name.upper()
        learned = self._known[key].get(query.instance)
        if learned is None or query.is_authoritative or query.name not in (*NAMES, *ALIASES):
            return
        word, is_apart = learned.word, self.unwritten_since < inf or query.at <= self._silent_until
        if is_apart and not self._is_in_memory(learned):
            return  # the store cannot be read
        if any(later.since > word.since for later in self.upstream.words[key]):
            return  # it may have what another instance learned
        # It was answered from the cache, so the record is there; a bypass may have failed to renew it.
        is_bypassed = query.at - self._bypassed.get(key, -inf) < DEADLINE
        # A query may have waited for its turn since the time when nothing was known.
        has_waited = query.at - learned.at < _LONGEST_WAIT
        begins = word.fresh_until - _REFRESHED * (word.fresh_until - word.at) - _QUICK - 2 * self.skew
        if self.world.now() < begins and not (is_bypassed or has_waited) and word.since > self._set_back_at:
            left = word.fresh_until - self.world.now()
            self.report(ASKED_ONCE, f"{query.name} is asked by instance {query.instance}, and {left:.0f} s are left")

    def _look(self) -> None:
        """Read the log."""
        if self.unwritten_since < inf:
            self.causes.doubt()
        if any(line.endswith(_RENAMED) for line in self.world.log[self._lines_read :]):
            # A start finds damage of a page that no process had read. The empty file gets what the living instances
            # have in memory, and nothing else.
            self.lose_store()
        self._lines_read = len(self.world.log)
        self.incidents.read(self.world.log, self._now())

    # --- What happens to the service -------------------------------------------------------------------------------

    def stop_service(self) -> None:
        """The service is stopped, and perhaps starts with an empty budget."""
        self._look()
        self.causes.doubt()

    def start_service(self, *, is_stored: bool) -> None:
        """The service was started anew. What is not in the store is lost."""
        self.incidents.start(self.world.log)
        for instance in range(self.instances):
            self._end_memory(instance, inf if is_stored and self.unwritten_since == inf else 0.0)
        self._tokens = BURST

    def kill(self, instance: int, *, is_stored: bool) -> None:
        """An instance was killed: what it alone had is lost."""
        self._look()
        self.causes.doubt()
        self.incidents.start(self.world.log, is_killed=True)
        self._end_memory(instance, min(self.unwritten_since, self._now() - WRITE_SECONDS) if is_stored else 0.0)
        # Its part of the budget is whole again.
        self._tokens = min(BURST, self._tokens + BURST / self.instances)

    def _end_memory(self, instance: int, written: float) -> None:
        """An instance is another process: it knows what was in the store before `written`, a virtual time."""
        self._breakers.forget(instance)
        self._started_at[instance] = self._now()
        for key, known in self._known.items():
            learned = known.get(instance)
            if learned is not None and (learned.word.since >= written or learned.word.since <= self._lost_at):
                del known[instance]
                if (newest := self._newest.get(key)) is not None and newest.instance == instance:
                    del self._newest[key]
        for key, purge in list(self._purges.items()):
            if purge.at >= written and purge.instance == instance:
                del self._purges[key]

    def cut(self) -> None:
        """A link is cut."""
        self._cut_at = self._now()
        self.causes.doubt()

    def mend(self) -> None:
        """What was sent while a link was cut arrives."""
        self._mended_at = self._now()
        self.causes.doubt()
        self.upstream.delay(self._cut_at - _FLUSHED, self._mended_at - self._cut_at)

    def begin_outage(self, *, is_silent: bool = False) -> None:
        """The store fails from now on. A silent one cannot be read either."""
        self.unwritten_since = self._now() - WRITE_SECONDS
        if is_silent:
            self._silent_until = inf

    def end_outage(self) -> None:
        """The store has had the time to get what it missed."""
        now = self._now()
        self._outages.append((self.unwritten_since, now))
        self.unwritten_since = inf
        self._silent_until = min(self._silent_until, now)

    def lose_store(self) -> None:
        """The store has lost its data. What an instance answered before is in its memory alone, and so are purges."""
        self._lost_at = self._now()
        self._newest.clear()
        for known in self._known.values():
            for instance in [number for number, learned in known.items() if not self._is_in_memory(learned)]:
                del known[instance]

    def _is_in_memory(self, learned: Learned) -> bool:
        """Whether no instance has evicted it, and it is not from before a restart."""
        return self.memory_has_all and learned.at >= self._started_at[learned.instance]

    def crowd(self, seconds: float) -> None:
        """A crowd of clients comes and goes for so many seconds."""
        self._crowded_until = self._now() + seconds

    def set_clock(self, by: float) -> None:
        """The clock of a machine was set. Set back, answers may count as from the future."""
        now = self._now()
        self._offsets.append((now, self.world.now() - now))
        if by > 0:
            self.upstream.delay(now - _QUICK, by)
        else:
            self._known.clear()
            self._newest.clear()
            self._purges.clear()
            # Instances that read the changes of others find a gap, and store nothing that was asked before.
            self._set_back_at = now + ANNOUNCED

    def bypass(self, name: str) -> None:
        """A client asks for a name past the cache."""
        self._bypassed[name.upper()] = self._now()

    def purge(self, name: str, sent_at: float, instance: int, reply: Reply | None) -> None:
        """An operator has purged a name. None: the instance was killed."""
        key, now = name.upper(), self._now()
        if reply is not None and reply.status == 200:
            self._purges[key] = Purge(sent_at, now, instance)
        elif reply is not None and self.unwritten_since == inf:
            self.report("a purge is answered 200", f"{name}: {reply.status} {reply.text}")
        self.forget(name)

    def forget(self, name: str) -> None:
        """Nothing is known of a name any more."""
        self._known.pop(name.upper(), None)
        self._newest.pop(name.upper(), None)

    def _known_by(self, at: float, other: bool) -> float:
        """The virtual time by which all instances know what one of them learned, or purged, at a time."""
        if not other:
            return at + _ROUNDING
        if self.unwritten_since < inf:
            return inf
        ends = [end for begin, end in self._outages if begin - ANNOUNCED <= at <= end]
        return max([at, *ends]) + ANNOUNCED

    # --- The clients' side -----------------------------------------------------------------------------------------

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
        if answer.cancelled() or (request.twin is not None and answer.exception() is not None):
            return
        if answer.exception() is not None:
            # At the cap, a head that is not whole is closed too (docs/operations.md).
            is_first_to_go = self.busy[request.client] >= _FEW_CONNECTIONS or request.dawdles_for > 0.0
            if not (self._now() < self._crowded_until and is_first_to_go):
                self.report("every request is answered", f"{name}: {answer.exception()}")
            return
        reply, now = answer.result(), self.world.now()
        self.answered += 1
        self.statuses[reply.status] += 1
        self._digest.update(f"! {now:.6f} {name} {reply.status} {reply.location}\n".encode())
        began = self._now() - reply.seconds
        if reply.seconds > DEADLINE:
            self.report("every request is answered within its deadline", f"{name} took {reply.seconds:.1f} s")
        if request.twin is not None:
            self._check_twin(request, reply)
            return
        instance = request.client % self.instances
        target, alias = _read_target(reply)
        if target is not None or alias is not None:
            self._check_found(request, reply, began, target, alias)
        elif reply.status == 404:
            self.check_not_found(name, instance, began)
        # That of an alias needs the record of the name, too.
        elif reply.status >= 429 and request.directive is None and (name not in ALIASES or "api" in request.path):
            self.check_known(name, instance, str(reply.status), began)
        if reply.status >= 429:
            self._check_cause(request, reply, began)

    def _check_twin(self, request: Request, reply: Reply) -> None:
        """Judge the same request past the prepared answers, at the same time."""
        of: Reply = request.twin
        one, other = (
            (each.status, each.body, [_without_times(name, value) for name, value in each.fields])
            for each in (of, reply)
        )
        # The store may have another instance's answer, which memory looks for when its own is old.
        is_alone = self.instances == 1 or "; detail=" not in (of["cache-status"] or "")
        # Or it has just read that another instance has a newer one.
        words, instance = self.upstream.words[request.name.upper()], request.client % self.instances
        said = [words, *(self.upstream.words[word.alias.upper()] for word in words if word.alias)]
        others = [word.since for each in said for word in each if word.instance != instance]
        has_news = any(self._known_by(since, other=True) >= self._now() for since in others)
        is_at_once = reply.seconds == of.seconds == 0.0 and self._heard_at < self._now()
        if is_at_once and is_alone and not has_news and one != other:
            self.report(TWINS, f"{request.path.format(request.name)}: {one[0]} {one[2]}, {other[0]} {other[2]}")

    def _words(self, name: str, instance: int, began: float) -> list[Word]:
        """The words on which an answer of an instance about a name may stand."""
        key = name.upper()
        words, purge = self.upstream.words[key], self._purges.get(key)
        if purge is not None and began > self._known_by(purge.at, other=instance != purge.instance):
            # A request may join a query from before, whose answer is not stored.
            sent_at = purge.sent_at - 2 * self.skew - _ROUNDING
            # Its answer and the look for a purge may be under way until then.
            since = min(began, sent_at - 4 * self.latency) if self.looks_first else began
            words = [word for word in words if word.asked_at >= sent_at or word.since >= since]
        return words

    def find_words(self, name: str, instance: int, began: float, target: str | None, alias: str | None) -> list[Word]:
        """The words on which an answer can stand. Judges one without such a word, and an old one."""
        every = [word for word in self.upstream.words[name.upper()] if (word.target, word.alias) == (target, alias)]
        said = [word for word in self._words(name, instance, began) if word in every]
        if not every:
            self.report("never another name's target", f"{name} leads to {target or alias}")
        elif not said:
            self.report(PURGED, f"{name} leads to {target or alias} in instance {instance}")
        elif (asked_at := self.earliest(began)) > (ends := max(word.ends + word.late for word in said)) + _ON_THE_WAY:
            what = f"{name}: {target or alias} ended {asked_at - ends:.0f} s ago"
            self.report("never an answer past its grace", what)
        return said

    def check_row(self, name: str, instance: int, began: float, url: str) -> None:
        """Judge the target of a name in a row of a list, which may be that of another name."""
        named = [word.alias for word in self.upstream.words[name.upper()] if word.alias]
        self.find_words(named[-1] if named else name, instance, began, url, None)

    def _check_found(self, request: Request, reply: Reply, began: float, target: str | None, alias: str | None) -> None:
        name, instance, now = request.name, request.client % self.instances, self._now()
        said = self.find_words(name, instance, began, target, alias)
        key, status = name.upper(), reply["cache-status"] or ""
        is_fetched = "; fwd=" in status
        # An entry from before the clock was set back has no times to rely on.
        if not said or (said[-1] if is_fetched else said[0]).since < self._set_back_at:
            return
        last = said[-1] if is_fetched else self._stands_on(key, instance, said, reply)
        self._check_fresh(request, reply, said, began)
        newest = self._newest.get(key)
        if newest is not None and last.since < newest.word.since - _QUICK - 2 * self.skew:
            is_other = (last.target, last.alias) != (newest.word.target, newest.word.alias)
            if is_other and began > self._known_by(newest.at, other=newest.instance != instance):
                learned = (
                    f"instance {newest.instance} learned {newest.word.target or newest.word.alias} at {newest.at:.3f} s"
                )
                self.report(CHANGED, f"{name} leads to {target or alias} in instance {instance}, and {learned}")
        if reply.status == 301 and alias is not None:
            self._check_alias(name, alias, instance, began)
        known, purge = self._known[key].get(instance), self._purges.get(key)
        if purge is not None and last.asked_at <= self._known_by(purge.at, other=True):
            # The answer to a query that was sent before a purge is not stored. Each instance reads it a moment later.
            return
        if known is None or known.word is not last:
            self._known[key][instance] = Learned(last, now, instance)
        if is_fetched and (newest is None or last.since > newest.word.since):
            self._newest[key] = Learned(last, now, instance)

    def _stands_on(self, key: str, instance: int, said: Sequence[Word], reply: Reply) -> Word:
        """The word that an answer from the cache stands on: that with its end, else the one from before."""
        if found := _FROM_CACHE.match(reply["cache-status"] or ""):
            ends = self.world.now() + int(found[1])
            return min(said, key=lambda word: abs(word.fresh_until - ends))
        known = self._known[key].get(instance)
        return known.word if known is not None and known.word in said else said[-1]

    def _check_alias(self, name: str, alias: str, instance: int, began: float) -> None:
        """Judge a redirect to a name: it may be gone."""
        known = self._known[alias.upper()].get(instance)
        if known is None or not known.word.is_denial or known.at >= began - _ROUNDING:
            return
        if self.world.now() < known.word.fresh_until - _QUICK - self.skew:
            self.report(DEAD_END, f"{name} leads to {alias}, which is not registered")

    def _check_fresh(self, request: Request, reply: Reply, said: Sequence[Word], began: float) -> None:
        """Judge whether an answer is fresh, or says why it is not, and its numbers."""
        status = reply["cache-status"] or ""
        detail = _DETAIL.search(status)
        if detail is None:
            ended = max(word.fresh_until + word.late for word in said)
            if self.earliest(began) > ended + _ON_THE_WAY and "; fwd=" not in status:
                self.report(FRESH, f"{request.name}: {status}")
        elif request.directive is None and (objection := self.causes.find_old_objection(detail[1], began)):
            self.report(FRESH, f"{request.name}: {status}, {objection[1]}")
        found = _HIT.match(status)
        # That of an alias is about the name that it stands for.
        if found is not None and began > self._set_back_at and reply.status != 301:
            self._check_numbers(request.name, reply, said, int(found[1]))

    def _check_numbers(self, name: str, reply: Reply, said: Sequence[Word], left: int) -> None:
        """Judge the numbers of a fresh answer, which has so many seconds left."""
        status, now = reply["cache-status"], self.world.now()
        slack = _QUICK + 2 * self.skew + reply.seconds + self.stall
        numbers = {word: (word.fresh_until - now, now - word.at) for word in said}
        fits = [word for word, (rest, _) in numbers.items() if abs(rest - left) <= slack + word.late]
        if not fits:
            self.report(NUMBERS, f"{name}: {status}, of {[round(rest, 1) for rest, _ in numbers.values()]}")
            return
        age = int(reply["age"] or 0)
        usual = age + max(0, min(int(CEILING), left))
        if reply.max_age is None or reply.max_age > usual:
            self.report(NUMBERS, f"{name}: {status}, {reply['cache-control']}")
        if reply["age"] is not None and not any(abs(numbers[word][1] - age) <= slack + word.late for word in fits):
            self.report(NUMBERS, f"{name}: age {age} of {[round(numbers[word][1], 1) for word in fits]}")
        if reply.expires is not None and reply.expires > now + left + slack:
            self.report(NUMBERS, f"{name}: {status}, {reply['expires']}")
        tag = reply["etag"]
        if tag is not None and self._tags.setdefault((name, tag), reply.body) != reply.body:
            self.report(NUMBERS, f"{name}: two bodies have the tag {tag}")

    def check_not_found(self, name: str, instance: int, began: float) -> None:
        """Judge an answer that a name is not registered."""
        words = self.upstream.words[name.upper()]
        every = [word for word in words if word.is_denial]
        # An alias of a name that is gone.
        named = [word.alias for word in words if word.alias]
        of_named = [word for word in self.upstream.words[named[-1].upper()] if word.is_denial] if named else []
        asked_at = self.earliest(began)
        known = self._known[name.upper()].get(instance)
        if not every and not of_named:
            self.report("never 'not found' without the upstream's word", name)
            return
        if asked_at > max(word.ends + word.late for word in every + of_named) + _ON_THE_WAY:
            self.report("never an old 'not found'", f"{name}: {asked_at - (every + of_named)[-1].at:.0f} s old")
        if not every or (of_named and every[-1].since < of_named[-1].since):
            return
        if known is not None and not known.word.is_denial and known.at < began - _ROUNDING:
            is_usable = known.word.at - _SKEW <= self.world.now() <= known.word.ends - _ON_THE_WAY
            later = [word for word in every if word.since > known.word.since]
            # Another instance may have learned it, and it may have known nothing before.
            is_alone = self.instances == 1 and self.memory_has_all and self._lost_at == -inf
            if is_alone and is_usable and later and not any(word.is_authoritative for word in later):
                self.report(DENIED, f"{name} is not registered, and {known.word.target or known.word.alias} was known")
        self._known[name.upper()][instance] = Learned(every[-1], self._now(), instance)
        self._newest.pop(name.upper(), None)

    def check_known(self, name: str, instance: int, failure: str, began: float) -> None:
        """Judge a failure: what was answered before the request began is answered again."""
        self._look()
        now, known = self.world.now(), self._known[name.upper()].values()
        denials = [learned.word for learned in known if learned.word.is_denial]
        # A denial that was confirmed replaces a record, also if the client has left.
        words = self.upstream.words[name.upper()]
        denials += [word for word in words if word.is_denial and word.is_authoritative]
        denied = max((word.since for word in denials), default=-inf)
        for learned in known:
            word = learned.word
            # What instances were told in these seconds, they write in any order.
            stored = [at for at in words if word.since - WRITE_SECONDS <= at.since <= word.since and not at.is_denial]
            ends = word.ends if self._is_in_memory(learned) else min((at.ends for at in stored), default=word.ends)
            if word.since <= denied or not word.at - _SKEW <= now <= ends - _ON_THE_WAY:
                continue
            if learned.at >= began - _ROUNDING:
                continue
            left = f"{name}: {failure}, {word.ends - now:.0f} s are left"
            if learned.instance == instance:
                if self._is_in_memory(learned) or not (self._was_lost(word) or self._is_apart(word, began)):
                    self.report(ANSWERED_AGAIN, left)
            elif not self._was_lost(word) and not self._is_apart(word, began):
                is_missed = any(begin <= word.since <= end for begin, end in self._outages)
                if began > self._known_by(word.since, other=True) + _REPEATED:
                    self.report(MISSED if is_missed else OTHERS, left)

    def _was_lost(self, word: Word) -> bool:
        return word.since <= self._lost_at

    def _is_apart(self, word: Word, began: float) -> bool:
        return word.since >= self.unwritten_since or began <= self._silent_until

    def list_learned(self) -> dict[str, set[str]]:
        """The targets that names surely lead to after a restart without an upstream: what the newest words say."""
        now = self.world.now()
        found: dict[str, set[str]] = {}
        for key, newest in self._newest.items():
            word = newest.word
            is_sure = word.since > max(self._lost_at, self._set_back_at) and key not in self._purges
            if word.target is not None and is_sure and now < word.ends - 3 * _ON_THE_WAY:
                # An instance may have learned more than a client was answered.
                later = [other for other in self.upstream.words[key] if other.since >= word.since]
                # What another instance learned a moment before made the name one to forget while this was asked.
                is_forgotten = any(
                    other.instance != word.instance and word.since - ANNOUNCED <= other.since <= word.since
                    for other in self.upstream.words[key]
                )
                if not is_forgotten and not any(other.is_denial for other in later):
                    found[key] = {other.target for other in later if other.target}
        return found

    def _check_cause(self, request: Request, reply: Reply, began: float) -> None:
        self._look()
        token = (reply["proxy-status"] or "").partition('details="')[2].rstrip('"')
        objection = self.causes.find_objection(token, began)
        # A failure is remembered for some time of the day, which comes again if the clock is set back meanwhile.
        before = [(begin, self.world.now() - offset) for begin, offset in self._offsets]
        ends = [begin + AFTERMATH for begin, _ in before[1:]]
        again = [at for (begin, at), end in zip(before, ends, strict=False) if begin <= at <= end]
        if objection and all(self.causes.find_objection(token, at) for at in again):
            self.report(objection[0], f"{request.name}: {reply.status}, {objection[1]}")
        if request.client >= PATIENT and token in _OF_OTHERS and self.causes.is_calm(began - AFTERMATH):
            self.report("a client alone is never refused for what others do", f"{request.name}: {token}")
