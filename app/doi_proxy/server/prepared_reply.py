"""One prepared reply: its bytes, and the records that it stands on."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import msgspec

from doi_names.name import HandleName
from doi_proxy.errors import CouldNotVerify
from doi_proxy.resolver.resolution import HIT, Chain, Origin, Resolution, refresh_from
from doi_proxy.web import responses
from doi_proxy.web.countdown import Countdown
from doi_proxy.web.failure_headers import seconds_to_wait
from doi_proxy.web.freshness import cache_status_text
from doi_proxy.web.header import Header, header_lines
from doi_proxy.web.stage import PreparedRequest
from doi_proxy.web.variants import Variant
from handle_protocol.answer import ResponseCode

#: Bytes that a prepared reply takes in addition to its texts: its objects, its freshness, its dictionary entry.
OVERHEAD: Final = 1_200
_CACHE_STATUS: Final = b"\r\ncache-status: "
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
        at = self.head.rfind(_CACHE_STATUS)
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
