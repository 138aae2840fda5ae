"""The express lane answers frequent plain requests from prepared bytes, before the server parses them.

It is a byte cache. Only the application fills it, with replies that depend on the path and one fresh record alone. The
key is the path, or a whole plain request; the value is the last reply. A reply is used while its record is fresh in
memory with the same values. Its freshness headers are written again once a second, by the code that wrote the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from app.doi.name import HandleName
from app.host import is_host
from app.resolver.resolution import Resolution
from app.resolver.resolver import Resolver
from app.web.freshness import CACHE_CONTROL, cache_status_text
from app.web.header import Header, header_lines
from app.web.negotiation import wants_data
from app.web.request import below
from app.web.responses import Hit, Reply, frame_lines, status_line
from app.web.stage import PreparedRequest, Stages

#: Bytes that a prepared reply takes in addition to its texts: its objects, its freshness, its dictionary entry.
OVERHEAD: Final = 1_000
#: Larger replies and requests take the full path. This keeps the cache small.
MAX_ANSWER_BYTES: Final = 16_384
MAX_REQUEST_BYTES: Final = 4_096
#: The header lines of a request (RFC 9112, section 5), without the forms that parsers read differently.
_HEAD: Final = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)+\r\n")
#: Headers with which a request takes the full path.
NOT_PLAIN: Final = frozenset(
    {
        b"content-length",
        b"transfer-encoding",
        b"expect",
        b"upgrade",
        b"if-none-match",
        b"x-request-id",
        CACHE_CONTROL,
    }
)
#: The server's parser obeys both. HTTP/1.1 does not define the second (RFC 9112, appendix C.2.2).
_CONNECTION: Final = frozenset({b"connection", b"proxy-connection"})
_VERSION: Final = b" HTTP/1.1\r\n"
_HEAD_METHOD: Final = b"H"
_EMPTY_LINE: Final = b"\r\n"
_FORWARDED_FOR: Final = re.compile(rb"\r\nx-forwarded-for:[ \t]*([^\r]*)", re.IGNORECASE)
#: Answers of which one is counted with its client, for all of them. An answer takes this lane 3.6 us; the client of
#: each would add 2.4 us, and 6 us behind a front proxy (processor time, best of 7).
CLIENT_SAMPLE: Final = 16
Value = TypeVar("Value")


class Prepared(msgspec.Struct, gc=False):
    """A reply as bytes. `head` has the freshness of the second when it was last sent."""

    target: bytes
    name: HandleName
    #: The hash of the record's values (64 bits, keyed). The values themselves would stay in memory after eviction.
    source: int
    freshness: Callable[[Resolution, int], tuple[Header, ...]]
    status: int
    #: The header lines that do not change.
    lines: bytes
    #: The empty line and the body.
    tail: bytes
    #: The inputs of `head`: the time, the time at which the record was fetched, and the server's header lines.
    second: int = -1
    fetched_at: float = 0.0
    first: bytes = b""
    head: bytes = b""
    cache_status: str | None = None

    @property
    def size(self) -> int:
        """Its size in memory, in bytes."""
        return len(self.target) + len(self.name.text) + 2 * len(self.lines) + len(self.tail) + OVERHEAD


class Generations(Generic[Value]):
    """A bounded map with two generations. An entry is dropped once others weighing `most` were used after it.

    It holds at most twice that weight, and one entry more.
    """

    def __init__(self, most: int, weigh: Callable[[bytes, Value], int]) -> None:
        self._most = most
        self._weigh = weigh
        self._weight = 0
        self._young: dict[bytes, Value] = {}
        self._old: dict[bytes, Value] = {}

    def get(self, key: bytes) -> Value | None:
        """The value of a key, which counts as used. None if it is not in the map."""
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: bytes, value: Value) -> None:
        """Add a value, or replace it."""
        if self._weight >= self._most:
            self._old, self._young, self._weight = self._young, {}, 0
        # A key that is put again counts twice until its generation is over.
        self._weight += self._weigh(key, value)
        self._young[key] = value

    def drop(self, key: bytes) -> None:
        """Remove a key."""
        self._young.pop(key, None)
        self._old.pop(key, None)

    def clear(self) -> None:
        """Remove every key."""
        self._young, self._old, self._weight = {}, {}, 0


class ExpressLane:
    """Answers plain requests for names that are fresh in memory."""

    def __init__(
        self,
        resolver: Resolver,
        stages: Stages,
        *,
        clock: Callable[[], float],
        timer: Callable[[], float],
        sub_path: bytes,
        max_bytes: int,
    ) -> None:
        """`timer` is that of logged durations. `max_bytes` bounds the cache."""
        self._resolver = resolver
        self._clock = clock
        self._gates = stages.gates
        self._count_prepared = stages.count_prepared
        self._count_client = stages.count_client
        self._answers_until_sample = CLIENT_SAMPLE
        self._timer = timer
        self._log_prepared = stages.log_prepared
        self._shows_clients = any(stage.shows_clients for stage in stages.loggers)
        self._sub_path = sub_path
        # Each map holds up to twice its weight.
        self._targets: Generations[Prepared] = Generations(max_bytes * 3 // 8, lambda _, reply: reply.size)
        self._requests: Generations[Prepared] = Generations(max_bytes // 8, lambda key, reply: len(key) + reply.size)

    def offer(self, target: bytes, reply: Reply, hit: Hit) -> None:
        """Prepare the application's reply to a plain request for `target`, the raw path as it was sent."""
        previous = self._targets.get(target)
        if previous is not None and previous.source == _source(hit.resolution):
            return
        prepared = Prepared(
            target=target,
            name=hit.resolution.name,
            source=_source(hit.resolution),
            freshness=hit.freshness,
            status=reply.status,
            lines=frame_lines(reply),
            tail=_EMPTY_LINE + reply.body,
        )
        if prepared.size <= MAX_ANSWER_BYTES:
            self._targets.put(target, prepared)

    def clear(self) -> None:
        """Drop every reply, because something besides the records has changed."""
        self._targets.clear()
        self._requests.clear()

    def answer(self, request: bytes, default_headers: bytes, client_of: Callable[[bytes | None], str]) -> bytes | None:
        """The whole answer to one whole request without a body. None if the request must take the full path.

        `default_headers` are the lines that the server puts first, such as the date. `client_of` returns the address
        of the client, given the value of X-Forwarded-For. It is called for limits, for a log that shows clients,
        and for a sample.
        """
        began = 0.0 if self._log_prepared is None else self._timer()
        prepared = self._requests.get(request) or self._find(request)
        if prepared is None:
            return None
        found = self._resolver.find_fresh(prepared.name)
        if found is None or _source(found) != prepared.source:
            self._requests.drop(request)
            self._targets.drop(prepared.target)
            return None
        for gate in self._gates:
            # If the client may not have the answer, the full path refuses and counts the request.
            if not gate.admits_all and not gate.passes(client_of(_forwarded_for(request))):
                return None
        self._resolver.count_answer(found)
        second = int(self._clock())
        if (
            second != prepared.second
            or default_headers != prepared.first
            or found.entry.fetched_at != prepared.fetched_at
        ):
            _write_head(prepared, found, second, default_headers)
        head_only = request.startswith(_HEAD_METHOD)
        method = "HEAD" if head_only else "GET"
        if self._count_prepared is not None:
            self._count_prepared(method, prepared.status)
        self._answers_until_sample -= 1
        if not self._answers_until_sample:
            self._answers_until_sample = CLIENT_SAMPLE
            if self._count_client is not None:
                self._count_client(client_of(_forwarded_for(request)), CLIENT_SAMPLE)
        if self._log_prepared is None:
            return prepared.head + (_EMPTY_LINE if head_only else prepared.tail)
        client = client_of(_forwarded_for(request)) if self._shows_clients else ""
        path = below(self._sub_path, prepared.target) if self._sub_path else prepared.target
        size = 0 if head_only else len(prepared.tail) - len(_EMPTY_LINE)
        answered = PreparedRequest(method, path, client, prepared.status, size, prepared.cache_status)
        last = self._log_prepared(answered, self._timer() - began)
        return prepared.head + last + (_EMPTY_LINE if head_only else prepared.tail)

    def _find(self, request: bytes) -> Prepared | None:
        """The prepared reply to a request that is not in the map of requests."""
        end = request.find(_VERSION)
        target = request[5 if request.startswith(_HEAD_METHOD) else 4 : end]
        prepared = self._targets.get(target)
        if prepared is None or len(request) > MAX_REQUEST_BYTES:
            return None
        if not is_plain(request[end + len(_VERSION) :]):
            return None
        self._requests.put(request, prepared)
        return prepared


def _forwarded_for(request: bytes) -> bytes | None:
    """The value of X-Forwarded-For; several lines are one list (RFC 9110, section 5.3)."""
    values = _FORWARDED_FOR.findall(request)
    return b", ".join(values) if values else None


def _write_head(prepared: Prepared, found: Resolution, second: int, first: bytes) -> None:
    freshness = prepared.freshness(found, second)
    prepared.second, prepared.fetched_at, prepared.first = second, found.entry.fetched_at, first
    prepared.head = status_line(prepared.status) + first + prepared.lines + header_lines(freshness)
    prepared.cache_status = cache_status_text(freshness)


def is_plain(head: bytes) -> bool:
    """Whether no header of a request can change the answer about a name without locations."""
    if not _HEAD.fullmatch(head):
        return False
    hosts, accepts = [], []
    for line in head.split(b"\r\n")[:-2]:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if name in NOT_PLAIN or (name in _CONNECTION and value.lower() != b"keep-alive"):
            return False
        if name == b"host":
            hosts.append(value)
        elif name == b"accept":
            accepts.append(value)
    if len(hosts) != 1 or not is_host(hosts[0]):
        return False
    return not wants_data(b", ".join(accepts).decode("latin-1") if accepts else None)


def _source(resolution: Resolution) -> int:
    # Bytes remember their hash.
    return hash(resolution.entry.answer.values)
