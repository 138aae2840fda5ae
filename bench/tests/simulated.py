"""Parts of simulated proxies for tests: one answer for every name, and the size of its entry in memory."""

from __future__ import annotations

from bench.names import HOT
from bench.records import values_of
from doi_proxy.cache.entry import Entry
from handle_protocol.referral import Answer, ResponseCode

ANSWER = Answer(ResponseCode.SUCCESS, values_of(HOT))


def entry_size(key: str) -> int:
    """Bytes of an entry with this key in the memory tier."""
    return Entry(key, ANSWER, 0.0, 0.0, 0.0).size
