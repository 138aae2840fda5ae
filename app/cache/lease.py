"""Leases within one process. The owner of a name's lease is the only one that queries the upstream about it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

#: Leases of one process. The oldest lease is dropped first.
_MAX_LEASES: Final = 10_000


class Leases:
    """The owner and the end of each lease. Times are seconds since the epoch."""

    def __init__(self) -> None:
        self._leases: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def take(self, key: str, owner: str, now: float, seconds: float) -> bool:
        """Take the lease for `owner`. Returns False if another owner has it."""
        lease = self._leases.get(key)
        # A lease that ends later than a new one would was taken before the clock was set back. It is ignored.
        if lease is not None and now < lease[1] <= now + seconds:
            return False
        self._leases[key] = (owner, now + seconds)
        self._leases.move_to_end(key)
        while len(self._leases) > _MAX_LEASES:
            self._leases.popitem(last=False)
        return True

    def renew(self, key: str, owner: str, now: float, seconds: float) -> None:
        """Let the lease end after `seconds` if `owner` has it."""
        lease = self._leases.get(key)
        if lease is not None and lease[0] == owner:
            self._leases[key] = (owner, now + seconds)

    def release(self, key: str, owner: str) -> None:
        """Release the lease if `owner` has it."""
        lease = self._leases.get(key)
        if lease is not None and lease[0] == owner:
            del self._leases[key]
