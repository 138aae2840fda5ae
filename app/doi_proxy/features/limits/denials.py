"""Networks that an operator denied for a time.

A denial reaches the instance that was asked, and ends with its process. `client_deny_file` and a reload reach all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from doi_proxy.errors import InvalidParameter

#: Networks that can be denied at the same time. `client_deny_file` holds more.
MAX_DENIALS: Final = 1_000


class Denials:
    """The end of each denial by its network, in seconds of the timer."""

    def __init__(self, timer: Callable[[], float], apply: Callable[[Collection[str]], None]) -> None:
        """`apply` gets the networks after each change.

        `timer` is monotonic. A clock that is set back would prolong denials.
        """
        self._timer = timer
        self._apply = apply
        self._ends: dict[str, float] = {}

    def deny(self, network: str, seconds: float) -> None:
        """Deny a network, or with 0 seconds allow it again. Raises InvalidParameter for too many."""
        self.refresh()
        ends = {denied: end for denied, end in self._ends.items() if denied != network}
        if seconds > 0:
            ends[network] = self._timer() + seconds
        if len(ends) > MAX_DENIALS:
            raise InvalidParameter(f"{MAX_DENIALS} networks are denied already; add this one to client_deny_file.")
        self._use(ends)

    def list(self) -> Mapping[str, float]:
        """The seconds that are left of each denial in force."""
        self.refresh()
        now = self._timer()
        return {network: end - now for network, end in self._ends.items()}

    def refresh(self) -> None:
        """Drop the denials that have ended."""
        now = self._timer()
        self._use({network: end for network, end in self._ends.items() if end > now})

    def _use(self, ends: dict[str, float]) -> None:
        if ends != self._ends:
            self._ends = ends
            self._apply(ends)
