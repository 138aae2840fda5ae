"""The token buckets of one process, by name."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from app.token_bucket import Bucket, back_off, take_token

#: Seconds without use after which a store drops a bucket. A bucket is usually full again after a day.
MAX_IDLE: Final = 86_400
#: Buckets of one process. A dropped bucket starts full again.
_MAX_BUCKETS: Final = 10_000


class Buckets:
    """The token buckets of one process, by name. The least recently used bucket is dropped first."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, name: str, now: float, rate: float, burst: float, leaving: float = 0.0, count: int = 1) -> float:
        """Take tokens and return 0.0, or the seconds until there will be as many."""
        bucket, wait = take_token(self._buckets.get(name), now, rate, burst, leaving, count)
        self._keep(name, bucket)
        return wait

    def back_off(self, name: str, now: float, seconds: float) -> None:
        """Empty the bucket for `seconds`, then let it fill again."""
        self._keep(name, back_off(self._buckets.get(name), now, seconds))

    def _keep(self, name: str, bucket: Bucket) -> None:
        self._buckets[name] = bucket
        self._buckets.move_to_end(name)
        while len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
