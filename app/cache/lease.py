"""The right to ask about a name, within one process."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

#: Leases that one process remembers; the oldest are forgotten first.
_MOST_LEASES: Final = 10_000


class Leases:
    """Who may ask about which name until when; seconds since the epoch."""

    def __init__(self) -> None:
        self._leases: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def take(self, key: str, owner: str, now: float, seconds: float) -> bool:
        """Whether the lease was free, and is `owner`'s now."""
        held = self._leases.get(key)
        # A lease that ends later than a new one would was taken before the clock was set back.
        if held is not None and now < held[1] <= now + seconds:
            return False
        self._leases[key] = (owner, now + seconds)
        self._leases.move_to_end(key)
        while len(self._leases) > _MOST_LEASES:
            self._leases.popitem(last=False)
        return True

    def release(self, key: str, owner: str) -> None:
        """Give the lease back, if it is `owner`'s."""
        held = self._leases.get(key)
        if held is not None and held[0] == owner:
            del self._leases[key]
