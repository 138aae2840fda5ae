"""Whether an answer of the day is right, and whether the proxy stayed within the budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from zlib import crc32

from bench.records import target_of
from doi_names.name import fold

#: One of this many names is not registered.
_ONE_UNKNOWN_IN = 20
#: The TTLs of records, in seconds. Some end within an incident, most do not.
_TTLS = (5, 20, 60, 172_800, 172_800)


class Verdict(Enum):
    """The verdict on one answer. Only WRONG is a fault."""

    FRESH = "right, fresh from the cache"
    ASKED = "right, fetched from the upstream"
    STALE = "right, stale and marked as stale"
    NOT_FOUND = "not found, and it is not"
    COULD_NOT_VERIFY = "could not verify (502, 503, 504)"
    DROPPED = "connection ended without an answer"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Answer:
    """The parts of an answer that decide: status, `Location`, `Cache-Status`, body."""

    status: int
    location: str = ""
    cache_status: str = ""
    body: bytes = b""


def is_registered(name: str) -> bool:
    """Whether the upstream has a record of the name. Only the name decides."""
    return crc32(fold(name).encode()) % _ONE_UNKNOWN_IN != 0


def ttl_of(name: str) -> int:
    """The TTL of the name's record, in seconds."""
    return _TTLS[crc32(b"ttl" + fold(name).encode()) % len(_TTLS)]


def judge(name: str, answer: Answer) -> Verdict:
    """The verdict on the answer to a redirect (status 302) or a REST request (status 200) for a name."""
    if answer.status in (502, 503, 504):
        return Verdict.COULD_NOT_VERIFY
    if answer.status == 404:
        return Verdict.WRONG if is_registered(name) else Verdict.NOT_FOUND
    says_target = answer.location == target_of(name) if answer.status == 302 else _holds(name, answer)
    if answer.status not in (200, 302) or not is_registered(name) or not says_target:
        return Verdict.WRONG
    if "detail=" in answer.cache_status or "ttl=-" in answer.cache_status:
        return Verdict.STALE
    return Verdict.FRESH if "; hit" in answer.cache_status else Verdict.ASKED


def _holds(name: str, answer: Answer) -> bool:
    return answer.body.startswith(b'{"responseCode":1,') and target_of(name).encode() in answer.body


def worst_burst(arrivals: Iterable[float], rate: float) -> float:
    """The smallest burst of a token bucket of `rate` (tokens a second) that would have admitted all arrivals.

    `arrivals` are in seconds, in ascending order.
    """
    owed = worst = 0.0
    last: float | None = None
    for arrival in arrivals:
        owed = max(0.0, owed - (arrival - (arrival if last is None else last)) * rate) + 1.0
        worst = max(worst, owed)
        last = arrival
    return worst
