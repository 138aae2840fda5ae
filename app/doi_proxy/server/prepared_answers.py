"""Prepared answers: the replies to frequent requests as bytes, which are sent before the server parses a request.

They are a byte cache that the application fills. The key is the target with its query, and what the headers of a
request select. An answer is one join of lines that stay while its records do, and of the numbers of the moment:

    HTTP/1.1 302 Found                                       the reply
    date: Sat, 21 Nov 2026 12:00:00 GMT                      the server, once a second
    location: https://example.org/article                    the reply, with the lines that all replies have
    expires: Sun, 22 Nov 2026 12:00:00 GMT                   its record
    cache-control: public, max-age=300                       min(300, the seconds left)
    cache-status: doi-proxy; hit; ttl=86400                  the seconds left

A usual redirect is prepared here at its first request, if memory or the store has its record. What ends a reply is in
`PreparedAnswers._holds`, and `clear` is for what every reply may depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import msgspec

from doi_names.name import HandleName
from doi_names.presentation import read_path
from doi_proxy.errors import FAILURES, CouldNotVerify
from doi_proxy.resolver.resolution import HIT, LOCAL, Origin, Resolution, ResolutionObserver, refresh_from
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.server import plain_head
from doi_proxy.web import responses
from doi_proxy.web.freshness import NO_TERMS, Terms, cache_status_text
from doi_proxy.web.negotiation import WANTS_DATA, Varies, mask_of, select_variant
from doi_proxy.web.redirect import Face
from doi_proxy.web.request import below
from doi_proxy.web.request_path import DOI_PATH, header_lines
from doi_proxy.web.responses import Basis, FailureBasis, Reply, seconds_to_wait
from doi_proxy.web.stage import PreparedRequest
from handle_protocol.referral import SUCCESS

#: Ends a head.
_EMPTY_LINE: Final = b"\r\n"


class Ground(msgspec.Struct, frozen=True, gc=False):
    """A name that a reply stands on, and a hash of what was known about it: 0 for nothing."""

    name: HandleName
    source: int
    #: Whether it is part of the chain of the reply, whose records are counted and decide its freshness.
    is_followed: bool = True


class PreparedReply(msgspec.Struct, gc=False):
    """A reply as bytes, to requests that select `variant` in the bits of `mask`."""

    target: bytes
    mask: int
    variant: int
    #: That of its name comes first. No record is held: it would stay in memory after its eviction.
    grounds: tuple[Ground, ...]
    status: int
    #: The header lines that do not change.
    lines: bytes
    #: The empty line and the body.
    tail: bytes
    freshness: Callable[[Resolution, int], Terms] = lambda *_: NO_TERMS
    #: The token of the failure that the reply is about. "" for one about records.
    token: str = ""
    #: When the reply ends, whatever the records are.
    until: float = inf
    # --- What follows is as its records were at the time `since`.
    since: float = inf
    terms: Terms = NO_TERMS
    #: Until when a record in memory with the same times and values is the answer; -inf if there is more to look at.
    sure_until: float = -inf
    key: str = ""
    #: How its answers are counted: where each is from, and whether it is a "not found".
    origins: tuple[tuple[Origin, bool], ...] = ()
    fetched_at: float = 0.0
    fresh_until: float = 0.0
    values: int = 0
    # --- What follows is as it was last sent. To join it again takes 0.6 us, and for JSON 1.5: a tenth of an answer.
    second: int = -1
    first: bytes = b""
    head: bytes = b""
    #: What a log shows of it.
    logged: PreparedRequest | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes in memory: its texts, and the objects around them."""
        names = sum([len(ground.name.text) + 200 for ground in self.grounds])
        return names + 2 * len(self.lines) + len(self.tail) + 1_100

    def write(self, second: int, first: bytes) -> None:
        """Write the head for a second, with the server's header lines."""
        self.second, self.first, self.logged = second, first, None
        self.head = b"".join((responses.status_line(self.status), first, self.lines, self.terms.lines(second)))

    def count(self, observer: ResolutionObserver) -> None:
        """Count an answer about each of its names."""
        for origin, is_negative in self.origins:
            observer.record_origin(origin, is_negative)
        if self.token:
            observer.record_failure(self.token)

    def stand(self, found: Resolution, followed: tuple[Resolution, ...], now: float) -> None:
        """Stand on these records from now on: those of the chain, in its order."""
        entry, second = found.entry, int(now)
        last = msgspec.structs.replace(followed[-1], aliases=(found, *followed[:-1])) if followed else found
        self.terms, self.second = self.freshness(last, second), -1
        self.origins = tuple([(each.origin, not each.is_registered) for each in (found, *followed)])
        self.since, self.key, self.values = now, entry.key, hash(entry.answer.values)
        self.fetched_at, self.fresh_until = entry.fetched_at, entry.fresh_until
        if len(self.grounds) > 1 or found.origin is LOCAL or entry.is_negative:
            return
        due = refresh_from(entry)
        end = self.until if found.origin is not HIT else min(self.until, due if now < due else entry.fresh_until)
        # While no query is sent, the record is looked up anew each second: the upstream may answer again.
        is_steady = self.terms.ends is not None and now < due
        self.sure_until = end if is_steady else min(end, second + 1.0)


def prepare_reply(
    target: bytes, selected: int, reply: Reply, basis: Basis | FailureBasis, grounds: tuple[Ground, ...], now: float
) -> PreparedReply:
    """The prepared form of a reply."""
    mask, lines = mask_of(basis.varies), responses.frame_lines(reply)
    prepared = PreparedReply(target, mask, selected & mask, grounds, reply.status, lines, _EMPTY_LINE + reply.body)
    if isinstance(basis, FailureBasis):
        prepared.token, prepared.terms = basis.failure.token, Terms(header_lines(reply.freshness))
    else:
        prepared.freshness = basis.freshness
        prepared.until = inf if basis.seconds is None else now + basis.seconds
    return prepared


def hash_known(known: Resolution | CouldNotVerify | None) -> int:
    """A number that changes with what is known about a name: 64 bits, keyed. 0 for None.

    A failure changes with the time to wait. So does a "not found" with its own time: a page about it, which can show
    what else was known then, is as old as it.
    """
    if known is None:
        return 0
    if isinstance(known, CouldNotVerify):
        return hash((known.token, known.message, seconds_to_wait(known)))
    answer = known.entry.answer
    # Bytes remember their hash.
    values = hash(answer.values)
    if known.origin is HIT and answer.code is SUCCESS:
        return values
    reason = None if known.failure is None else known.failure.token
    more = (known.origin, answer.code, known.entry.fetched_at, reason, known.agency)
    gone = known.tombstone and (known.tombstone.reason, known.tombstone.date)
    return hash((values, more, gone, known.allows_detour))


class Shelf:
    """The replies by target, in up to `most` bytes: none for a target that had some, or was requested once.

    There are two generations. A target is dropped once others that fill one were used after it.
    """

    def __init__(self, most: int) -> None:
        self._most = most // 2
        self.clear()

    def clear(self) -> None:
        """Remove every target."""
        self._weight = 0
        self._young: dict[bytes, tuple[PreparedReply, ...]] = {}
        self._old: dict[bytes, tuple[PreparedReply, ...]] = {}

    def get(self, target: bytes) -> tuple[PreparedReply, ...] | None:
        """The replies to a target, which counts as used. None if it is not on the shelf."""
        replies = self._young.get(target)
        if replies is None and (replies := self._old.get(target)) is not None:
            self.put(target, replies)
        return replies

    def put(self, target: bytes, replies: tuple[PreparedReply, ...]) -> None:
        """Add a target, or replace its replies."""
        # The entry of the dictionary takes 200 bytes.
        weight = len(target) + 200 + sum([reply.size for reply in replies])
        if self._weight + weight > self._most:
            self._old, self._young, self._weight = self._young, {}, 0
        # A target that is put again counts twice until its generation is over.
        self._weight += weight
        self._young[target] = replies


#: Larger replies and requests take the full path. This keeps the cache small.
MAX_ANSWER_BYTES: Final = 16_384
#: Header lines whose selection is remembered.
MAX_HEADS: Final = 512
#: Answers of which one is counted with its client, for all of them. To count each would double their time.
CLIENT_SAMPLE: Final = 16
#: What headers select with which a request takes the full path.
_FULL_PATH: Final = -1
#: Ends the target of a request.
_VERSION: Final = b" HTTP/1.1"


class PreparedAnswers:
    """Answers plain requests whose answers depend only on what is in memory, or in a store that needs no task."""

    def __init__(
        self,
        resolver: Resolver,
        face: Face,
        *,
        clock: Callable[[], float],
        timer: Callable[[], float],
        sub_path: bytes,
        secret: bytes,
        max_bytes: int,
    ) -> None:
        """`timer` is that of logged durations. `secret` makes the hashes of headers unpredictable, also with a fixed
        PYTHONHASHSEED. `max_bytes` bounds the cache.
        """
        stages = face.stages
        self._resolver, self._pages, self._redirect = resolver, face.pages, face.redirects.answer_plain
        self._clock, self._timer, self._secret = clock, timer, secret
        self._sub_path, self._usual_path = sub_path, sub_path + DOI_PATH
        self._admission = stages.admission
        self._count_prepared = stages.count_prepared or (lambda method, status: None)
        self._count_client = stages.count_client
        self._answers_until_sample = CLIENT_SAMPLE
        self._log_prepared = stages.log_prepared
        self._shows_clients = any(stage.shows_clients for stage in stages.loggers)
        #: Of rare replies, such as pages and those to targets with a query, a client can request any number.
        self._usual, self._rare = Shelf(max_bytes * 3 // 4), Shelf(max_bytes // 4)
        self._find_usual, self._find_rare = self._usual.get, self._rare.get
        self._peek, self._observer = resolver.peek, resolver.observer
        #: What header lines select that are not private. Most clients send the same ones: to read them takes 17 us.
        #: They are kept as a hash of 64 bits with a secret: what they say of a reader, such as Referer, is not kept.
        self._heads: dict[int, int] = {}

    def offer(
        self, target: bytes, reply: Reply, basis: Basis | FailureBasis, header: Callable[[bytes], str | None]
    ) -> None:
        """Prepare the application's reply to a plain request for `target`, the raw path and query as it was sent.

        `header` returns a header of the request. A rare reply is prepared when its target is requested again.
        """
        selected = select_variant(header, self._pages.languages)
        if selected is None:
            return
        is_rare = b"?" in target or reply.status >= 400 or Varies.LANGUAGE in basis.varies
        # The replies to one target are on one shelf.
        shelf = self._rare if is_rare and not self._find_usual(target) else self._usual
        known, mask = shelf.get(target), mask_of(basis.varies)
        if known is None and is_rare:
            shelf.put(target, ())
            return
        source = hash_known(basis.failure if isinstance(basis, FailureBasis) else basis.resolution.chain[0])
        variant = mask, selected & mask
        if any((each.mask, each.variant) == variant and each.grounds[0].source == source for each in known or ()):
            return
        grounds = self._find_grounds(target, basis, source)
        prepared = None if grounds is None else prepare_reply(target, selected, reply, basis, grounds, self._clock())
        if prepared is not None and prepared.size <= MAX_ANSWER_BYTES:
            # Replies to one target differ by language or coding. Of 17, the one that was prepared first is dropped.
            rest = [each for each in known or () if (each.mask, each.variant) != variant]
            shelf.put(target, (prepared, *rest[:15]))

    def _find_grounds(self, target: bytes, basis: Basis | FailureBasis, source: int) -> tuple[Ground, ...] | None:
        """What a reply stands on. None if the next answer can be another one."""
        if isinstance(basis, FailureBasis):
            # A request with a query can bypass the cache. Another name, or a share of the client, can have failed.
            is_repeatable = b"?" not in target and source == hash_known(self._find_failure(basis.name))
            return (Ground(basis.name, source),) if is_repeatable else None
        first, *followed = basis.resolution.chain
        if hash_known(self._resolver.resolve_now(first.name)) != source:
            return None  # memory has not admitted the record, or this answer took a query
        return (
            Ground(first.name, source),
            *[Ground(resolution.name, hash_known(resolution)) for resolution in followed],
            *[Ground(name, hash_known(self._resolver.resolve_now(name)), False) for name in basis.find_watched()],
        )

    def _find_failure(self, name: HandleName) -> CouldNotVerify | None:
        """The failure that a request for a name meets now, if memory has no record of it."""
        if self._peek(name.key) is not None or self._resolver.is_local(name):
            return None
        return self._resolver.failures.find_current(name.key, self._clock())

    def clear(self) -> None:
        """Drop every reply, because something besides the records has changed: local records, rules, the look."""
        self._usual.clear()
        self._rare.clear()
        self._heads.clear()

    def answer(self, request: bytes, default_headers: bytes, client_of: Callable[[bytes | None], str]) -> bytes | None:
        """The whole answer to one whole request without a body. None if the request must take the full path.

        `default_headers` are the lines that the server puts first, such as the date. `client_of` returns the address
        of the client, given the value of X-Forwarded-For. It is called for limits, for a log that shows clients,
        and for a sample.
        """
        began = 0.0 if self._log_prepared is None else self._timer()
        head_only = request[0] == 72  # "H"
        end = request.find(_VERSION)
        target, head = request[5 if head_only else 4 : end], request[end:]
        selected, forwarded_for = self._heads.get(hash(self._secret + head)), None
        if selected is None:
            selected, forwarded_for = self._read_head(head)
        known = None
        for each in self._find_usual(target) or self._find_rare(target) or ():
            if selected & each.mask == each.variant:
                known = each
                break
        if selected == _FULL_PATH or (known is None and not self._can_make(target, selected)):
            return None
        now = self._clock()
        found = self._make(target, selected, now) if known is None else self._holds(known, now)
        admission = self._admission
        if found is None or not (admission.admits_all or admission.passes(client_of(forwarded_for))):
            return None  # the full path admits or refuses the request, and counts it
        found.count(self._observer)
        second = int(now)
        if found.second != second or found.first != default_headers:
            found.write(second, default_headers)
        method, tail = ("HEAD", _EMPTY_LINE) if head_only else ("GET", found.tail)
        self._count_prepared(method, found.status)
        self._answers_until_sample -= 1
        if not self._answers_until_sample:
            self._count_sample(client_of(forwarded_for))
        if self._log_prepared is None:
            return found.head + tail
        logged = self._describe(found, method, tail)
        client = client_of(forwarded_for) if self._shows_clients else ""
        return found.head + self._log_prepared(logged, client, self._timer() - began) + tail

    def _describe(self, prepared: PreparedReply, method: str, tail: bytes) -> PreparedRequest:
        """What a log shows of an answer that ends with `tail`."""
        if prepared.logged is None or prepared.logged.method != method:
            path, _, query = prepared.target.partition(b"?")
            path, size = below(self._sub_path, path), len(tail) - len(_EMPTY_LINE)
            cache_status = cache_status_text(prepared.terms.headers(prepared.second))
            prepared.logged = PreparedRequest(method, path, query, prepared.status, size, cache_status)
        return prepared.logged

    def _holds(self, prepared: PreparedReply, now: float) -> PreparedReply | None:
        """A reply, if the full path would give the same now. None if it has ended, and it is dropped.

        A reply ends when a record of it is replaced, purged, evicted or due for a refresh; when an outage begins or
        ends, which is looked for once a second; and when its own time is over. `clear` ends all of them.
        """
        if prepared.since <= now < prepared.sure_until:
            entry = self._peek(prepared.key)
            if (
                entry is not None
                and entry.fetched_at == prepared.fetched_at
                and entry.fresh_until == prepared.fresh_until
                and hash(entry.answer.values) == prepared.values
            ):
                return prepared
        first = prepared.grounds[0]
        if prepared.token:
            if hash_known(self._find_failure(first.name)) == first.source:
                return prepared
        elif now < prepared.until and (chain := self._find_chain(prepared)) is not None:
            found, *followed = chain
            is_same = (found.entry.fetched_at, found.entry.fresh_until) == (prepared.fetched_at, prepared.fresh_until)
            if followed or not is_same or prepared.sure_until > -inf or prepared.second != int(now):
                prepared.stand(found, tuple(followed), now)
            return prepared
        (self._usual if self._find_usual(prepared.target) else self._rare).put(prepared.target, ())
        return None

    def _find_chain(self, prepared: PreparedReply) -> list[Resolution] | None:
        """The records of a reply: the first, and the rest of its chain. None if they are others than before."""
        chain = []
        for ground in prepared.grounds:
            # Memory may have evicted a record that the store has.
            found = self._resolver.resolve_now(ground.name)
            if hash_known(found) != ground.source:
                return None
            if found is not None and ground.is_followed:
                chain.append(found)
        return chain

    def _count_sample(self, client: str) -> None:
        self._answers_until_sample = CLIENT_SAMPLE
        if self._count_client is not None:
            self._count_client(client, CLIENT_SAMPLE)

    def _read_head(self, head: bytes) -> tuple[int, bytes | None]:
        """What the rest of a request after its target selects, and its X-Forwarded-For.

        What a reader alone sends is not kept. The next reader has the same lines without it.
        """
        rest, forwarded_for = plain_head.cut_private(head)
        known = self._heads.get(key := hash(self._secret + rest))
        if known is not None:
            return known, forwarded_for
        read = None
        version, _, lines = rest.partition(b"\r\n")
        if version == _VERSION and len(lines) <= plain_head.MAX_PLAIN_BYTES:
            read = plain_head.select_head(lines, self._pages.languages)
        selected, other = read or (_FULL_PATH, None)
        if not plain_head.is_private(rest):
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()  # those that are in use come back
            self._heads[key] = selected
        if other is not None and forwarded_for is not None:
            return _FULL_PATH, None  # of several lines, the full path decides which counts
        return selected, forwarded_for if other is None else other

    def _can_make(self, target: bytes, selected: int) -> bool:
        """Whether a target is the path of a name without a query, as every parser reads it, and no data are wanted."""
        is_usual = target.startswith(self._usual_path) and b"?" not in target and not selected & WANTS_DATA
        is_short = len(target) <= plain_head.MAX_PLAIN_BYTES
        return is_usual and is_short and plain_head.ORIGIN_FORM.fullmatch(target) is not None

    def _make(self, target: bytes, selected: int, now: float) -> PreparedReply | None:
        """Prepare the redirect of a record that is found without a task. It is kept if memory has the record."""
        found, reply = None, None
        try:
            found = self._resolver.resolve_now(read_path(target[len(self._sub_path) :]))
            reply = None if found is None else self._redirect(found)
        except FAILURES:
            pass  # the full path meets the same error, and answers it
        if found is None or reply is None or reply.basis is None:
            return None
        prepared = prepare_reply(target, selected, reply, reply.basis, (Ground(found.name, hash_known(found)),), now)
        prepared.stand(found, (), now)
        if (found.origin is LOCAL or self._peek(found.name.key)) and prepared.size <= MAX_ANSWER_BYTES:
            self._usual.put(target, (prepared,))
        return prepared
