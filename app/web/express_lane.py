"""The express lane: hot, plain requests answered from prepared bytes, before any task or parser exists for them.

A request is plain if it is a GET or HEAD of a path without query, of HTTP/1.1, without a body, and if none of its
headers can change the answer. What the full application answered such a request once, it answers again here: the
same bytes, but for the headers that tell the time left, which the application's own code writes each second.
A prepared answer counts only while the very entry it was made from is fresh in memory, and dies with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import Final, Generic, TypeVar

from app.resolver.resolution import Resolution
from app.resolver.resolver import Resolver
from app.web.negotiation import is_browser, negotiate
from app.web.responses import EVERYWHERE, Header, Reply

#: Prepared answers and judged heads are kept in two generations of at most so many.
MAX_PREPARED: Final = 65_536
MAX_HEADS: Final = 2_048
#: Larger answers and heads take the full way, so that what is kept stays small.
MAX_ANSWER_BYTES: Final = 16_384
MAX_HEAD_BYTES: Final = 4_096
#: A whole head of RFC 9112, section 5, with nothing that parsers disagree about.
_HEAD: Final = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)+\r\n")
#: Headers with which a request takes the full way.
_NOT_PLAIN: Final = frozenset(
    {b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"if-none-match", b"x-request-id"}
)
_VERSION: Final = b" HTTP/1.1\r\n"
#: The headers that change while an answer is prepared.
CHANGING: Final = frozenset({b"expires", b"cache-control", b"age", b"cache-status"})
#: The route that these answers are counted under.
ROUTE: Final = "express"
Count = Callable[[str, str, int], None]
Freshness = Callable[[int], tuple[Header, ...]]
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(slots=True)
class Prepared:
    """An answer but for its changing headers, and how it looked in the second when it was last given."""

    resolution: Resolution
    freshness: Freshness
    status_line: bytes
    before: bytes
    after: bytes
    body: bytes
    status: int
    second: int = -1
    head: bytes = field(default=b"")


class Generations(Generic[Key, Value]):
    """A bounded dictionary: what was not used while `most` others were is forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
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
        if len(self._young) >= self._most:
            self._old, self._young = self._young, {}
        self._young[key] = value

    def drop(self, key: Key) -> None:
        """Forget a key."""
        self._young.pop(key, None)
        self._old.pop(key, None)


class ExpressLane:
    """Answers plain requests for names that are fresh in memory."""

    def __init__(self, resolver: Resolver, clock: Callable[[], float], count: Count) -> None:
        """`count` is told the route, method and status of each answer."""
        self._resolver = resolver
        self._clock = clock
        self._count = count
        self._prepared: Generations[bytes, Prepared] = Generations(MAX_PREPARED)
        self._heads: Generations[bytes, bool] = Generations(MAX_HEADS)

    def offer(self, target: bytes, reply: Reply, resolution: Resolution, freshness: Freshness) -> None:
        """Keep the full application's answer to a plain request for `target`, the raw path as it was sent.

        `freshness` writes the changing headers at a time in whole seconds.
        """
        if len(reply.body) > MAX_ANSWER_BYTES:
            return
        places = [number for number, (key, _) in enumerate(reply.headers) if key in CHANGING]
        before, after = reply.headers[: places[0]], reply.headers[places[-1] + 1 :]
        length = (b"content-length", str(len(reply.body)).encode())
        self._prepared.put(
            target,
            Prepared(
                resolution=resolution,
                freshness=freshness,
                status_line=_status_line(reply.status),
                before=_lines(before),
                # The same for nearly all answers of a length, and so kept once.
                after=_shared_lines((*after, *EVERYWHERE, length)),
                body=reply.body,
                status=reply.status,
            ),
        )

    def answer(self, request: bytes, default_headers: bytes) -> bytes | None:
        """The whole answer to one whole request without a body, or None where it has to take the full way.

        `default_headers` are the lines that the server puts first, such as the date.
        """
        end = request.find(_VERSION)
        head_only = request.startswith(b"HEAD ")
        prepared = self._prepared.get(request[5 if head_only else 4 : end])
        if prepared is None or not self._is_plain(request[end + len(_VERSION) :]):
            return None
        found = self._resolver.peek(prepared.resolution.name)
        if found is None or found.entry is not prepared.resolution.entry:
            self._prepared.drop(request[5 if head_only else 4 : end])
            return None
        second = int(self._clock())
        head = prepared.head
        if prepared.second != second or not head:
            head = prepared.before + _lines(prepared.freshness(second)) + prepared.after
            # Only what is asked for twice in a second is worth its memory.
            prepared.head = head if prepared.second == second else b""
            prepared.second = second
        self._count(ROUTE, "HEAD" if head_only else "GET", prepared.status)
        if head_only:
            return prepared.status_line + default_headers + head
        return b"".join((prepared.status_line, default_headers, head, prepared.body))

    def _is_plain(self, head: bytes) -> bool:
        judged = self._heads.get(head)
        if judged is None:
            judged = len(head) <= MAX_HEAD_BYTES and is_plain(head)
            if len(head) <= MAX_HEAD_BYTES:
                self._heads.put(head, judged)
        return judged


def is_plain(head: bytes) -> bool:
    """Whether none of a request's headers can change the answer about a name without locations."""
    if not _HEAD.fullmatch(head):
        return False
    wanted: dict[bytes, list[bytes]] = {b"accept": [], b"user-agent": []}
    for line in head.split(b"\r\n")[:-2]:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if name in _NOT_PLAIN or (name == b"connection" and value.lower() != b"keep-alive"):
            return False
        if name in wanted:
            wanted[name].append(value)
    accept, agent = (b", ".join(found).decode("latin-1") if found else None for found in wanted.values())
    return not negotiate(accept, None, is_browser(agent)).conneg


@lru_cache(maxsize=64)
def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())


@lru_cache(maxsize=4096)
def _shared_lines(headers: tuple[Header, ...]) -> bytes:
    return _lines(headers) + b"\r\n"


def _lines(headers: tuple[Header, ...]) -> bytes:
    return b"".join([name + b": " + value + b"\r\n" for name, value in headers])
