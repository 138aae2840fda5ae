"""Prepared answers: the replies to frequent requests as bytes, which are sent before the server parses a request.

They are a byte cache that the application fills. The key is the target with its query and what the headers of a request
select, or the hash of a whole request. A reply is used while its records are the same, with new freshness each second.

A usual redirect is prepared here at its first request, if memory or the store has its record.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, Generic, TypeVar

import msgspec

from doi_names.name import HandleName
from doi_names.presentation import read_path
from doi_proxy.cache.entry import Entry
from doi_proxy.errors import FAILURES, CouldNotVerify
from doi_proxy.resolver.resolution import HIT, Chain, Origin, Resolution, refresh_from
from doi_proxy.resolver.resolver import Resolver
from doi_proxy.server import plain_head
from doi_proxy.web import responses
from doi_proxy.web.application import ADMITTED
from doi_proxy.web.freshness import Countdown, cache_status_text
from doi_proxy.web.negotiation import Variant, Varies, narrow, select_variant
from doi_proxy.web.redirect import Face
from doi_proxy.web.request import below
from doi_proxy.web.request_path import DOI_PATH, Header, header_lines
from doi_proxy.web.responses import Basis, FailureBasis, Reply, seconds_to_wait
from doi_proxy.web.stage import PreparedRequest
from handle_protocol.referral import ResponseCode

Key = TypeVar("Key")
Value = TypeVar("Value")


class Generations(Generic[Key, Value]):
    """A bounded map with two generations. An entry is dropped once others weighing `most` were used after it.

    It holds at most twice that weight, and one entry more.
    """

    def __init__(self, most: int, weigh: Callable[[Key, Value], int]) -> None:
        self._most = most
        self._weigh = weigh
        self._weight = 0
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}

    def __len__(self) -> int:
        """The number of keys; one that was used in both generations counts twice."""
        return len(self._young) + len(self._old)

    def get(self, key: Key) -> Value | None:
        """The value of a key, which counts as used. None if it is not in the map."""
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Add a value, or replace it."""
        if self._weight >= self._most:
            self._old, self._young, self._weight = self._young, {}, 0
        # A key that is put again counts twice until its generation is over.
        self._weight += self._weigh(key, value)
        self._young[key] = value

    def drop(self, key: Key) -> None:
        """Remove a key."""
        self._young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        """Remove every key."""
        self._young, self._old, self._weight = {}, {}, 0


#: Bytes that a prepared reply takes in addition to its texts: its objects, its freshness, its dictionary entry.
OVERHEAD: Final = 1_200
#: Ends a head.
EMPTY_LINE: Final = b"\r\n"


class Ground(msgspec.Struct, frozen=True, gc=False):
    """A record besides the first that a reply stands on. `source` is 0 if memory has no fresh record."""

    name: HandleName
    source: int
    #: Whether it is part of the chain of the reply, whose records are counted and decide its freshness.
    is_followed: bool


class PreparedReply(msgspec.Struct, gc=False):
    """A reply as bytes. `head` has the freshness of the second when it was last sent."""

    target: bytes
    variant: Variant
    name: HandleName
    #: The identity of the record. The record itself would stay in memory after its eviction.
    source: int
    others: tuple[Ground, ...]
    freshness: Callable[[Chain, int], tuple[Header, ...]]
    status: int
    #: The header lines that do not change.
    lines: bytes
    #: The empty line and the body.
    tail: bytes
    #: How the freshness of one fresh record is written. None for a reply about a failure.
    countdown: Countdown | None = None
    #: The token of the failure that the reply is about. "" for one about records.
    token: str = ""
    #: When the reply ends, whatever the records are.
    until: float = inf
    #: The inputs of `head`: the time, the times of the record, the pattern of its freshness, the server's header lines.
    second: int = -1
    fetched_at: float = -1.0
    fresh_until: float = 0.0
    pattern: bytes = b""
    first: bytes = b""
    #: Until when a record with the same times and values is the answer, with the same local records.
    sure_until: float = -inf
    #: The origin of the record, and the hash of its values.
    origin: Origin = HIT
    values: int = 0
    head: bytes = b""
    #: How often it was chosen in that second, and its size in memory, in bytes.
    uses: int = 0
    size: int = 0
    #: What a log shows of a GET that gets this head. None until there is one.
    logged: PreparedRequest | None = None
    #: The rest of the first line of its requests, after the method.
    line: bytes = b""

    def __post_init__(self) -> None:
        names = len(self.name.text) + sum([len(ground.name.text) + 200 for ground in self.others])
        self.line = b" %b HTTP/1.1\r\n" % self.target
        self.size = 2 * len(self.target) + names + 2 * len(self.lines) + len(self.tail) + OVERHEAD

    @property
    def cache_status(self) -> str | None:
        """The value of Cache-Status after our own name."""
        at = self.head.rfind(b"\r\ncache-status: ")
        header = self.head[at + 2 :].partition(b"\r\n")[0].partition(b": ")
        return cache_status_text([(header[0], header[2])]) if at >= 0 else None

    def write_head(self, found: Resolution, followed: tuple[Resolution, ...], second: int, first: bytes) -> None:
        """Write the head for a second. `found` and `followed` are the records of the chain, in its order."""
        entry = found.entry
        # A record from after this second is of a clock that was set back: its Expires is not that of the record.
        is_usual = found.origin is HIT and entry.fetched_at <= second + 1.0
        if not is_usual or followed or self.countdown is None:
            chain = Chain(followed[-1], (found, *followed[:-1])) if followed else Chain(found)
            freshness, self.pattern = header_lines(self.freshness(chain, second)), b""
        else:
            if not self.pattern or entry.fetched_at != self.fetched_at or entry.fresh_until != self.fresh_until:
                self.pattern = self.countdown.pattern(found)
            freshness = self.pattern % self.countdown.numbers(found, second)
        self.second = second
        # While no query is sent, the record is looked up anew each second: the upstream may answer again.
        until = float(second + 1)
        if found.origin is HIT:
            until = max(refresh_from(entry), min(until, entry.fresh_until))
        self.sure_until = -inf if self.others or entry.is_negative else min(until, self.until)
        self.origin, self.values = found.origin, hash(entry.answer.values)
        self.fetched_at, self.fresh_until = entry.fetched_at, entry.fresh_until
        self.frame(first, freshness)

    def frame(self, first: bytes, freshness: bytes) -> None:
        """Write the head, given the server's header lines and those of the freshness."""
        self.first, self.uses, self.logged = first, 0, None
        self.head = b"".join((responses.status_line(self.status), first, self.lines, freshness))


def hash_failure(failure: CouldNotVerify | None) -> int:
    """A number that changes with what an answer says about a failure: which one, and when to try again. 0 for None."""
    return 0 if failure is None else hash((failure.token, failure.message, seconds_to_wait(failure)))


def hash_resolution(resolution: Resolution | None) -> int:
    """A number that changes with the answer: 64 bits, keyed. 0 for None.

    A "not found" changes with its time too: a page about it, which can show what else was known then, is as old as it.
    """
    if resolution is None:
        return 0
    answer = resolution.entry.answer
    # Bytes remember their hash.
    values = hash(answer.values)
    if resolution.origin is HIT and answer.code is ResponseCode.SUCCESS:
        return values
    reason = None if resolution.failure is None else resolution.failure.token
    more = (resolution.origin, answer.code, resolution.entry.fetched_at, reason, resolution.agency)
    gone = resolution.tombstone and (resolution.tombstone.reason, resolution.tombstone.date)
    return hash((values, more, gone, resolution.allows_detour))


def hash_basis(basis: responses.Basis | responses.FailureBasis) -> int:
    """The `source` of a reply."""
    return (
        hash_failure(basis.failure)
        if isinstance(basis, responses.FailureBasis)
        else hash_resolution(basis.chain.resolutions[0])
    )


def prepare_reply(
    target: bytes,
    variant: Variant,
    first: Resolution,
    reply: responses.Reply,
    basis: responses.Basis,
    others: tuple[Ground, ...] = (),
    until: float = inf,
) -> PreparedReply:
    """The prepared form of a reply about records, of which `first` is that of the name."""
    return PreparedReply(
        target=target,
        variant=variant,
        name=first.name,
        source=hash_resolution(first),
        others=others,
        freshness=basis.freshness,
        countdown=basis.countdown,
        status=reply.status,
        lines=responses.frame_lines(reply),
        tail=EMPTY_LINE + reply.body,
        until=until,
    )


def prepare_failure(
    target: bytes, variant: Variant, reply: responses.Reply, basis: responses.FailureBasis
) -> PreparedReply:
    """The prepared form of a reply about a failure. Its freshness never changes, so `lines` have it."""
    return PreparedReply(
        target=target,
        variant=variant,
        name=basis.name,
        source=hash_failure(basis.failure),
        others=(),
        freshness=lambda *_: (),
        token=basis.failure.token,
        status=reply.status,
        lines=responses.frame_lines(reply) + header_lines(reply.freshness),
        tail=EMPTY_LINE + reply.body,
    )


#: Larger replies and requests take the full path. This keeps the cache small.
MAX_ANSWER_BYTES: Final = 16_384
MAX_REQUEST_BYTES: Final = 4_096
#: Replies to one target, which differ by language or coding. The one that was prepared first is dropped first.
MAX_VARIANTS: Final = 16
#: Header lines whose selection is remembered while they are in use: those that come once do not push them out.
MAX_HEADS: Final = 256
#: Bytes of a target that was requested once, in the map of those.
_SEEN_BYTES: Final = 150
_VERSION: Final = b" HTTP/1.1\r\n"
_HEAD_METHOD: Final = ord("H")
_ERROR: Final = 400
#: Answers of which one is counted with its client, for all of them. To count each would double their time.
CLIENT_SAMPLE: Final = 16
_NOTHING: Final = (None, None, None)
_NOT_DONE: Final[tuple[bytes, set[str]]] = (b"", set())


class Shelf:
    """The replies by target, and by whole request, in a share of the memory."""

    def __init__(self, max_bytes: int) -> None:
        # Each map holds up to twice its weight.
        self.targets: Generations[bytes, tuple[PreparedReply, ...]] = Generations(
            max_bytes * 3 // 8, lambda _, replies: sum([reply.size for reply in replies])
        )
        # By a hash of 64 bits with a secret: what a request says of its reader, such as Referer, is not kept. A reply
        # is used only for its own target, so two requests of one hash could at worst swap its variants.
        self.requests: Generations[int, PreparedReply] = Generations(max_bytes // 8, lambda _, prepared: prepared.size)


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
        """`timer` is that of logged durations. `secret` makes the hashes of requests unpredictable, also with a fixed
        PYTHONHASHSEED. `max_bytes` bounds the cache.
        """
        stages = face.stages
        self._resolver = resolver
        self._pages = face.pages
        self._redirect = face.redirects.answer_plain
        self._clock = clock
        self._secret = secret
        self._admission = stages.admission
        self._count_prepared = stages.count_prepared or (lambda method, status: None)
        self._count_client = stages.count_client
        self._count_path = stages.count_path
        self._answers_until_sample = CLIENT_SAMPLE
        self._timer = timer
        self._log_prepared = stages.log_prepared
        self._shows_clients = any(stage.shows_clients for stage in stages.loggers)
        self._sub_path = sub_path
        self._usual_path = sub_path + DOI_PATH
        self._usual = Shelf(max_bytes * 3 // 4)
        #: Replies of which a client can request any number, such as pages, and those to targets with a query.
        self._rare = Shelf(max_bytes // 4 * 31 // 32)
        self._find_usual, self._find_rare = self._usual.requests.get, self._rare.requests.get
        self._peek, self._count_same = resolver.peek, resolver.observer.record_origin
        self._local_records = resolver.local_records
        #: What header lines select that are not private. Most clients send the same ones: to read them takes 17 us.
        self._heads: Generations[tuple[int, tuple[str, ...]], tuple[plain_head.Selected | None]] = Generations(
            MAX_HEADS, lambda *_: 1
        )
        #: What was done for the last request that got no reply, by its target.
        self._done = _NOT_DONE
        #: The targets of rare replies that were requested once.
        self._seen: Generations[int, bool] = Generations(max_bytes // 256, lambda *_: _SEEN_BYTES)

    def offer(
        self, target: bytes, reply: Reply, basis: Basis | FailureBasis, header: Callable[[bytes], str | None]
    ) -> None:
        """Prepare the application's reply to a plain request for `target`, the raw path and query as it was sent.

        `header` returns a header of the request. A rare reply is prepared when its target is requested again.
        """
        selected = select_variant(header, self._pages.languages)
        if selected is None:
            return
        is_rare = b"?" in target or reply.status >= _ERROR or Varies.LANGUAGE in basis.varies
        targets, variant = (self._rare if is_rare else self._usual).targets, narrow(selected, basis.varies)
        known = targets.get(target) or ()
        source = hash_basis(basis)
        is_known = any(answer.variant == variant and answer.source == source for answer in known)
        if is_known or (is_rare and not known and not self._is_seen(target)):
            return
        if isinstance(basis, FailureBasis):
            prepared = self._prepare_failure(target, variant, reply, basis)
        else:
            prepared = self._prepare_records(target, variant, reply, basis)
        if prepared is not None and prepared.size <= MAX_ANSWER_BYTES:
            rest = [answer for answer in known if answer.variant != variant]
            targets.put(target, (prepared, *rest[: MAX_VARIANTS - 1]))

    def _prepare_records(self, target: bytes, variant: Variant, reply: Reply, basis: Basis) -> PreparedReply | None:
        """A reply that is used while its records are the same."""
        first, *followed = basis.chain.resolutions
        if hash_resolution(self._resolver.resolve_now(first.name)) != hash_resolution(first):
            return None  # memory has not admitted the record, or this answer took a query: the next one can be another
        others = (
            *[Ground(resolution.name, hash_resolution(resolution), True) for resolution in followed],
            *[Ground(name, hash_resolution(self._resolver.resolve_now(name)), False) for name in basis.find_watched()],
        )
        until = inf if basis.seconds is None else self._clock() + basis.seconds
        return prepare_reply(target, variant, first, reply, basis, others, until)

    def _prepare_failure(
        self, target: bytes, variant: Variant, reply: Reply, basis: FailureBasis
    ) -> PreparedReply | None:
        """A reply that is used while the same failure is the last one about the name, in its second."""
        source = hash_failure(self._find_failure(basis.name))
        # A request with a query can bypass the cache. Another name, or a share of the client, can have failed.
        if b"?" in target or source == 0 or source != hash_failure(basis.failure):
            return None
        return prepare_failure(target, variant, reply, basis)

    def _find_failure(self, name: HandleName) -> CouldNotVerify | None:
        """The failure that a request for a name meets now, if memory has no record of it."""
        if self._peek(name.key) is not None or self._resolver.local_records is not self._local_records:
            return None
        return self._resolver.failures.find_current(name.key, self._clock())

    def clear(self) -> None:
        """Drop every reply, because something besides the records has changed."""
        for shelf in (self._usual, self._rare):
            shelf.targets.clear()
            shelf.requests.clear()

    def answer(self, request: bytes, default_headers: bytes, client_of: Callable[[bytes | None], str]) -> bytes | None:
        """The whole answer to one whole request without a body. None if the request must take the full path.

        `default_headers` are the lines that the server puts first, such as the date. `client_of` returns the address
        of the client, given the value of X-Forwarded-For. It is called for limits, for a log that shows clients,
        and for a sample.
        """
        began = 0.0 if self._log_prepared is None else self._timer()
        forwarded_for, head_only = None, request[0] == _HEAD_METHOD
        prepared = self._find_usual(key := hash(self._secret + request)) or self._find_rare(key)
        read: Resolution | None = None
        if prepared is None or not request.startswith(prepared.line, 4 if head_only else 3):
            # What a reader alone sends is not kept. The next reader has the same request without it.
            whole, (request, forwarded_for) = request, plain_head.cut_private(request)
            prepared, forwarded_for, read = self._find(request, request is not whole, forwarded_for, client_of)
            if prepared is None:
                return None
        admission = self._admission
        if read is None and not (admission.admits_all or admission.passes(client_of(forwarded_for))):
            return None
        now = self._clock()
        entry = None if prepared.token else self._find_same(prepared, now)
        if entry is not None and int(now) == prepared.second and default_headers == prepared.first:
            self._count_same(prepared.origin)
        elif not self._renew(prepared, read, entry, int(now), default_headers):
            self._drop(request, prepared.target)
            self._done = prepared.target, {ADMITTED}
            return None
        method, tail = ("HEAD", EMPTY_LINE) if head_only else ("GET", prepared.tail)
        self._count_prepared(method, prepared.status)
        self._answers_until_sample -= 1
        if not self._answers_until_sample:
            self._count_sample(client_of(forwarded_for), prepared)
        if self._log_prepared is None:
            return prepared.head + tail
        client = client_of(forwarded_for) if self._shows_clients else ""
        logged = (None if head_only else prepared.logged) or self._describe(prepared, method, tail)
        return prepared.head + self._log_prepared(logged, client, self._timer() - began) + tail

    def _describe(self, prepared: PreparedReply, method: str, tail: bytes) -> PreparedRequest:
        """What a log shows of an answer that ends with `tail`."""
        path, _, query = prepared.target.partition(b"?")
        path, size, cache_status = (
            below(self._sub_path, path),
            len(tail) - len(EMPTY_LINE),
            prepared.cache_status,
        )
        described = PreparedRequest(method, path, query, prepared.status, size, cache_status)
        if method == "GET":
            prepared.logged = described
        return described

    def take_marks(self, target: bytes) -> set[str]:
        """See doi_proxy.web.application.Preparation."""
        done, self._done = self._done, _NOT_DONE
        return done[1] if done[0] == target else set()

    def _find_same(self, prepared: PreparedReply, now: float) -> Entry | None:
        """The record that the head of a reply is about, if memory has it still. None if there may be another answer."""
        if (records := self._resolver.local_records) is not self._local_records:
            self._local_records = records
            self.clear()  # a new one may be about any name
            return None
        # While time goes forward, a local record ends and none begins.
        if not prepared.second <= now < prepared.sure_until:
            return None
        entry = self._peek(prepared.name.key)
        if entry is None or hash(entry.answer.values) != prepared.values:
            return None
        has_same_times = entry.fetched_at == prepared.fetched_at and entry.fresh_until == prepared.fresh_until
        return entry if has_same_times else None

    def _find_chain(
        self, prepared: PreparedReply, read: Resolution | None, same: Entry | None
    ) -> tuple[Resolution, tuple[Resolution, ...]] | None:
        """The records of a reply: the first, and the rest of its chain. None if they are others than before."""
        if same is not None and prepared.origin is HIT:
            return Resolution(prepared.name, same, HIT), ()
        if self._clock() >= prepared.until:
            return None
        # The client is admitted. Memory may have evicted the record that the store has.
        found = read or self._resolver.resolve_now(prepared.name)
        if found is None or (found is not read and hash_resolution(found) != prepared.source):
            return None
        followed = self._find_others(prepared) if prepared.others else ()
        return None if followed is None else (found, followed)

    def _renew(
        self,
        prepared: PreparedReply,
        read: Resolution | None,
        same: Entry | None,
        second: int,
        first: bytes,
    ) -> bool:
        """Count what a reply depends on, and write its head anew if a part of it has changed. False if it has ended."""
        if prepared.token:
            if hash_failure(self._find_failure(prepared.name)) != prepared.source:
                return False
            self._resolver.observer.record_failure(prepared.token)
            if not prepared.head or first != prepared.first:
                prepared.frame(first, b"")
            return True
        chain = self._find_chain(prepared, read, same)
        if chain is None:
            return False
        found, followed = chain
        for resolution in (found, *followed):
            self._resolver.count_answer(resolution)
        entry = found.entry
        wanted = (second, first, entry.fetched_at, entry.fresh_until)
        written = (prepared.second, prepared.first, prepared.fetched_at, prepared.fresh_until)
        if followed or wanted != written:
            prepared.write_head(found, followed, second, first)
        return True

    def _count_sample(self, client: str, prepared: PreparedReply) -> None:
        self._answers_until_sample = CLIENT_SAMPLE
        if self._count_client is not None:
            self._count_client(client, CLIENT_SAMPLE)
        if self._count_path is not None:
            path = below(self._sub_path, prepared.target.partition(b"?")[0])
            self._count_path(client, path, prepared.status, CLIENT_SAMPLE)

    def _find(
        self, request: bytes, is_cut: bool, forwarded_for: bytes | None, client_of: Callable[[bytes | None], str]
    ) -> tuple[PreparedReply | None, bytes | None, Resolution | None]:
        """The prepared reply to a request, its whole X-Forwarded-For, and its record if that was read for it.

        `forwarded_for` was cut from the request. Without what was cut, it may be in the maps of requests.
        """
        start = 5 if request[0] == _HEAD_METHOD else 4
        reply = (self._find_usual(key := hash(self._secret + request)) or self._find_rare(key)) if is_cut else None
        if reply is not None and request.startswith(reply.line, start - 1):
            return reply, forwarded_for, None
        target = request[start : (end := request.find(_VERSION))]
        usual, rare = self._usual.targets.get(target) or (), self._rare.targets.get(target) or ()
        if not (usual or rare or self._is_name(target)) or len(request) > MAX_REQUEST_BYTES:
            return _NOTHING
        head, languages = request[end + len(_VERSION) :], self._pages.languages
        known = self._heads.get(lines := (hash(self._secret + head), languages))
        is_kept = known is not None or not plain_head.is_private(head)
        read = plain_head.select_head(head, languages) if known is None else known[0]
        if known is None and is_kept:
            self._heads.put(lines, (read,))
        if read is None:
            return _NOTHING
        selected, other = read
        if other is not None and forwarded_for is not None:
            return _NOTHING  # of several lines, the full path decides which counts
        client = forwarded_for if other is None else other
        if usual or rare:
            return self._choose(selected, usual, rare, request if is_kept else None), client, None
        if selected.wants_data or not (self._admission.admits_all or self._admission.passes(client_of(client))):
            return _NOTHING  # the full path refuses and counts the request
        made = self._make(target, selected)
        return _NOTHING if made is None else (made[0], client, made[1])

    def _is_name(self, target: bytes) -> bool:
        """Whether a target is the path of a name without a query, as every parser reads it."""
        is_usual = target.startswith(self._usual_path) and b"?" not in target
        return is_usual and plain_head.ORIGIN_FORM.fullmatch(target) is not None

    def _choose(
        self,
        selected: Variant,
        usual: tuple[PreparedReply, ...],
        rare: tuple[PreparedReply, ...],
        request: bytes | None,
    ) -> PreparedReply | None:
        """The reply for what a request selects. A frequent one is kept for the whole request, if that is given."""
        for shelf, replies in ((self._usual, usual), (self._rare, rare)):
            for prepared in replies:
                if prepared.variant.admits(selected):
                    prepared.uses += 1
                    # Uses of a reply in one second after which it is found by the whole request, which saves 1.5 us.
                    # More requests than the map holds would only replace each other.
                    if request is not None and prepared.uses > 1:
                        shelf.requests.put(hash(self._secret + request), prepared)
                    return prepared
        return None

    def _make(self, target: bytes, selected: Variant) -> tuple[PreparedReply, Resolution] | None:
        """Prepare the redirect of a record that is found without a task, and keep it if memory keeps the record.

        The client is admitted. Without such a redirect, `take_marks` returns what the full path need not repeat.
        """
        found, reply = None, None
        try:
            found = self._resolver.resolve_now(read_path(target[len(self._sub_path) :]))
            reply = None if found is None else self._redirect(found)
        except FAILURES:
            pass  # the full path meets the same error, and answers it
        basis = None if reply is None else reply.basis
        if found is None or reply is None or not isinstance(basis, Basis):
            self._done = target, {ADMITTED}
            return None
        prepared = prepare_reply(target, narrow(selected, basis.varies), found, reply, basis)
        if prepared.size <= MAX_ANSWER_BYTES and (self._peek(found.name.key) or found.origin is Origin.LOCAL):
            self._usual.targets.put(target, (prepared,))
        return prepared, found

    def _find_others(self, prepared: PreparedReply) -> tuple[Resolution, ...] | None:
        """The rest of the chain of a reply. None if memory has something else than before."""
        followed = []
        for ground in prepared.others:
            found = self._resolver.resolve_now(ground.name)
            if hash_resolution(found) != ground.source:
                return None
            if found is not None and ground.is_followed:
                followed.append(found)
        return tuple(followed)

    def _drop(self, request: bytes, target: bytes) -> None:
        for shelf in (self._usual, self._rare):
            shelf.requests.drop(hash(self._secret + request))
            shelf.targets.drop(target)

    def _is_seen(self, target: bytes) -> bool:
        """Whether a target was requested before; from now on it was."""
        is_seen = self._seen.get(key := hash(target)) is not None
        if not is_seen:
            self._seen.put(key, True)
        return is_seen
