"""The express lane: hot, plain requests answered from prepared bytes, before any task or parser exists for them.

A request is plain if it is a GET or HEAD of a path without query, of HTTP/1.1, without a body, and if none of its
headers can change the answer. What the full application answered such a request once, it answers again here: the
same bytes, but for the headers that tell the time left, which the application's own code writes each second.
A prepared answer counts only while the values it was made from are fresh in memory, and dies with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Generic, TypeVar

import msgspec

from app.doi.name import HandleName
from app.resolver.resolution import Resolution
from app.resolver.resolver import Resolver
from app.web.access_log import FORWARDED_FOR, AccessLog, Asked, Told, verdict
from app.web.host import is_host
from app.web.negotiation import is_browser, negotiate
from app.web.request import below
from app.web.responses import EVERYWHERE, Header, Reply, header_lines, status_line

#: Judged heads are kept in two generations of at most so many.
MAX_HEADS: Final = 2_048
#: Bytes that a prepared answer takes besides its texts: its objects, the changing headers, its place in a dictionary.
OVERHEAD: Final = 700
#: Larger answers and heads take the full way, so that what is kept stays small.
MAX_ANSWER_BYTES: Final = 16_384
MAX_HEAD_BYTES: Final = 4_096
#: A whole head of RFC 9112, section 5, with nothing that parsers disagree about.
_HEAD: Final = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)+\r\n")
#: Headers with which a request takes the full way.
NOT_PLAIN: Final = frozenset(
    {b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"if-none-match", b"x-request-id"}
)
#: The server's parser obeys both, though HTTP/1.1 does not define the second (RFC 9112, appendix C.2.2).
_CONNECTION: Final = frozenset({b"connection", b"proxy-connection"})
_VERSION: Final = b" HTTP/1.1\r\n"
#: The headers that change while an answer is prepared.
CHANGING: Final = frozenset({b"expires", b"cache-control", b"age", b"cache-status"})
#: The route that these answers are counted under.
ROUTE: Final = "express"
Count = Callable[[str, str, int], None]
Freshness = Callable[[Resolution, int], tuple[Header, ...]]
Key = TypeVar("Key")
Value = TypeVar("Value")


class Prepared(msgspec.Struct, gc=False):
    """An answer but for its changing headers, and those as they were in the second when it was last given."""

    name: HandleName
    #: The hash of the values it was made from (64 bits, keyed): what the memory tier lets go is not kept here.
    made_from: int
    freshness: Freshness
    status: int
    status_line: bytes
    before: bytes
    after: bytes
    #: The lines that stand everywhere, with the length: the same object for all answers of a length.
    usual: bytes
    body: bytes
    #: Bytes that it takes.
    size: int
    #: When the changing headers were written, and when what they tell of was fetched.
    second: int = -1
    fetched_at: float = 0.0
    changing: bytes = b""
    verdict: str | None = None


class Generations(Generic[Key, Value]):
    """A bounded dictionary: what was not used while others of the weight `most` were is forgotten.

    It holds at most twice that, and one more.
    """

    def __init__(self, most: int, weigh: Callable[[Value], int]) -> None:
        self._most = most
        self._weigh = weigh
        self._weight = 0
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        """The value of a key, which counts as used; None where there is none."""
        value = self._young.get(key)
        if value is None and (value := self._old.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Keep a value."""
        if self._weight >= self._most:
            self._old, self._young, self._weight = self._young, {}, 0
        # One that is put again counts twice until its generation is over.
        self._weight += self._weigh(value)
        self._young[key] = value

    def drop(self, key: Key) -> None:
        """Forget a key."""
        self._young.pop(key, None)
        self._old.pop(key, None)


class ExpressLane:
    """Answers plain requests for names that are fresh in memory."""

    def __init__(
        self,
        resolver: Resolver,
        clock: Callable[[], float],
        count: Count,
        *,
        timer: Callable[[], float],
        access_log: AccessLog | None,
        sub_path: bytes,
        max_bytes: int,
    ) -> None:
        """`count` is told the route, method and status of each answer; `timer` is the access log's.

        `max_bytes` bounds what is prepared.
        """
        self._resolver = resolver
        self._clock = clock
        self._count = count
        self._timer = timer
        self._access_log = access_log
        self._sub_path = sub_path
        named = access_log is not None and access_log.tells_clients
        self._not_plain = NOT_PLAIN | {FORWARDED_FOR} if named else NOT_PLAIN
        self._prepared: Generations[bytes, Prepared] = Generations(max_bytes // 2, _size)
        self._heads: Generations[bytes, bool] = Generations(MAX_HEADS, _one)

    def offer(self, target: bytes, reply: Reply, resolution: Resolution, freshness: Freshness) -> None:
        """Keep the full application's answer to a plain request for `target`, the raw path as it was sent.

        `freshness` writes the changing headers of a resolution at a time in whole seconds.
        """
        known = self._prepared.get(target)
        if len(reply.body) > MAX_ANSWER_BYTES or (known is not None and known.made_from == _source(resolution)):
            return
        name = resolution.name
        places = [number for number, (key, _) in enumerate(reply.headers) if key in CHANGING]
        before, after = header_lines(reply.headers[: places[0]]), header_lines(reply.headers[places[-1] + 1 :])
        texts = len(name.text) + len(name.key)
        self._prepared.put(
            target,
            Prepared(
                name=name,
                made_from=_source(resolution),
                freshness=freshness,
                status=reply.status,
                status_line=status_line(reply.status),
                before=before,
                after=after,
                usual=_usual_lines(len(reply.body)),
                body=reply.body,
                size=len(target) + texts + len(before) + len(after) + len(reply.body) + OVERHEAD,
            ),
        )

    def answer(self, request: bytes, default_headers: bytes, client: str) -> bytes | None:
        """The whole answer to one whole request without a body, or None where it has to take the full way.

        `default_headers` are the lines that the server puts first, such as the date; `client` is the address at the
        other end of the connection.
        """
        began = 0.0 if self._access_log is None else self._timer()
        end = request.find(_VERSION)
        head_only = request.startswith(b"HEAD ")
        target = request[5 if head_only else 4 : end]
        prepared = self._prepared.get(target)
        if prepared is None or not self._is_plain(request[end + len(_VERSION) :]):
            return None
        found = self._resolver.at_hand(prepared.name)
        if found is None or _source(found) != prepared.made_from:
            self._prepared.drop(target)
            return None
        self._resolver.give(found)
        second = int(self._clock())
        if prepared.second != second or prepared.fetched_at != found.entry.fetched_at:
            changing = prepared.freshness(found, second)
            prepared.second, prepared.fetched_at = second, found.entry.fetched_at
            prepared.changing = header_lines(changing)
            prepared.verdict = None if self._access_log is None else verdict(changing)
        method = "HEAD" if head_only else "GET"
        last = b""
        if self._access_log is not None:
            told = Told(ROUTE, prepared.status, 0 if head_only else len(prepared.body), prepared.verdict)
            path = below(self._sub_path, target) if self._sub_path else target
            last = self._access_log.plain(Asked(method, path, b"", client), told, self._timer() - began)
        self._count(ROUTE, method, prepared.status)
        lines = (
            prepared.status_line,
            default_headers,
            prepared.before,
            prepared.changing,
            prepared.after,
            prepared.usual,
        )
        return b"".join((*lines, last, b"\r\n", b"" if head_only else prepared.body))

    def _is_plain(self, head: bytes) -> bool:
        judged = self._heads.get(head)
        if judged is None:
            judged = len(head) <= MAX_HEAD_BYTES and is_plain(head, self._not_plain)
            if len(head) <= MAX_HEAD_BYTES:
                self._heads.put(head, judged)
        return judged


def is_plain(head: bytes, not_plain: frozenset[bytes] = NOT_PLAIN) -> bool:
    """Whether none of a request's headers can change the answer about a name without locations.

    `not_plain` are those that may in any case, by their lower-case names.
    """
    if not _HEAD.fullmatch(head):
        return False
    wanted: dict[bytes, list[bytes]] = {b"accept": [], b"user-agent": [], b"host": []}
    for line in head.split(b"\r\n")[:-2]:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if name in not_plain or (name in _CONNECTION and value.lower() != b"keep-alive"):
            return False
        if name in wanted:
            wanted[name].append(value)
    hosts = wanted.pop(b"host")
    if len(hosts) != 1 or not is_host(hosts[0]):
        return False
    accept, agent = (b", ".join(found).decode("latin-1") if found else None for found in wanted.values())
    return not negotiate(accept, None, is_browser(agent)).conneg


@lru_cache(maxsize=4096)
def _usual_lines(length: int) -> bytes:
    return header_lines((*EVERYWHERE, (b"content-length", b"%d" % length)))


def _source(resolution: Resolution) -> int:
    # Bytes remember their hash.
    return hash(resolution.entry.answer.values)


def _size(prepared: Prepared) -> int:
    return prepared.size


def _one(_: bool) -> int:
    return 1
