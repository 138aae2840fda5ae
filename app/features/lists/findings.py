"""The memory of one batch: the findings that the cache does not keep for long."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from app.features.lists.verdict import UNDECIDED, Finding

#: Bytes of a finding without its texts: the slot of the map, the key object and the finding. Measured by tracemalloc.
ENTRY_BYTES: Final = 400
#: Findings that stay fresh for longer than this, in seconds, are left to the cache.
_LONG_TTL: Final = 3_600.0


class Findings:
    """Findings by the key of their name, at most `max_bytes` of them. The oldest are evicted first.

    A failure is not cached, and "not found" is cached for a minute. Without this memory, each repetition of such a name
    in a long list would be a query.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._findings: OrderedDict[str, Finding] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._findings)

    @property
    def bytes(self) -> int:
        """The approximate size of the findings."""
        return self._bytes

    def find(self, key: str) -> Finding | None:
        """The finding about a name."""
        return self._findings.get(key)

    def remember(self, key: str, finding: Finding, now: float) -> None:
        """Store a finding, unless the cache will have it for long. `now` is in seconds since the epoch."""
        if finding.verdict not in UNDECIDED and finding.fresh_until - now > _LONG_TTL:
            return
        if key in self._findings:
            return
        self._findings[key] = finding
        self._bytes += _size(key, finding)
        while self._bytes > self._max_bytes:
            self._bytes -= _size(*self._findings.popitem(last=False))


def _size(key: str, finding: Finding) -> int:
    return ENTRY_BYTES + len(key) + len(finding.url or "")
