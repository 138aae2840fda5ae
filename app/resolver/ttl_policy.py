"""The lifetime of a cache entry: the TTLs of the record, within the limits of the operator."""

from __future__ import annotations

from dataclasses import dataclass

from app.cache.entry import Entry
from app.handle.answer import Answer, ResponseCode
from app.handle.record_cache import parse_record


@dataclass(frozen=True, slots=True)
class TtlPolicy:
    """Limits, in seconds. If `ceiling` is below `floor`, `ceiling` counts."""

    floor: float
    ceiling: float
    negative: float
    grace: float

    def entry(self, key: str, answer: Answer, fetched_at: float) -> Entry:
        """The cache entry of an answer that arrived at `fetched_at`, in seconds since the epoch.

        A record is fresh until the first TTL of its values ends, and may be served stale during the grace after that.
        "Not found" and "no values" are fresh for the negative TTL and never served stale: only a recent answer may
        say that a DOI name does not exist.
        """
        if answer.code is not ResponseCode.SUCCESS:
            ends = fetched_at + self.negative
            return Entry(key=key, answer=answer, fetched_at=fetched_at, fresh_until=ends, stale_until=ends)
        lifetime = parse_record(answer.values).ends_at(fetched_at) - fetched_at
        ends = fetched_at + min(max(lifetime, self.floor, 0.0), self.ceiling)
        return Entry(key=key, answer=answer, fetched_at=fetched_at, fresh_until=ends, stale_until=ends + self.grace)
