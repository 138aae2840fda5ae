"""Networks that an operator denied for a time. The workers of a machine share them; a restart ends them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from ipaddress import ip_network
from typing import Final

from doi_proxy.errors import DoiProxyError, InvalidParameter
from doi_proxy.sharing.memory import SharedMemory

log = logging.getLogger(__name__)

#: Networks that can be denied at the same time. `client_deny_file` holds more.
MAX_DENIALS: Final = 1_000


class Denials:
    """The end of each denial by its network, in seconds of the timer. A call of `refresh` follows other workers."""

    def __init__(
        self, memory: SharedMemory, timer: Callable[[], float], apply: Callable[[Collection[str]], None]
    ) -> None:
        """`memory` is shared by the workers. `apply` gets the networks after each change.

        `timer` is monotonic and the same for all processes of the machine. A clock that is set back would prolong
        denials.
        """
        self._memory = memory
        self._version = 0
        self._timer = timer
        self._apply = apply
        self._ends: dict[str, float] = {}

    def deny(self, network: str, seconds: float) -> None:
        """Deny a network, or with 0 seconds allow it again. Raises InvalidParameter for too many."""
        ends = self._timer() + seconds

        def change(content: bytes) -> bytes:
            return json.dumps(self._change(_read(content), network, ends)).encode()

        if not self._memory.change(change, waits=True):
            raise DoiProxyError("A worker that was stopped holds the denials; end it, and deny the network again.")
        self._use(_read(self._memory.read()))

    def list(self) -> Mapping[str, float]:
        """The seconds that are left of each denial in force, those of other workers included."""
        self.refresh()
        now = self._timer()
        return {network: ends - now for network, ends in self._ends.items()}

    def refresh(self) -> None:
        """Read the memory if it was changed, and drop the denials that have ended."""
        if (version := self._memory.version) != self._version:
            self._version = version
            self._use(_read(self._memory.read()))
        now = self._timer()
        if any(ends <= now for ends in self._ends.values()):
            self._use({network: ends for network, ends in self._ends.items() if ends > now})

    def _use(self, ends: dict[str, float]) -> None:
        if ends != self._ends:
            self._ends = ends
            self._apply(ends)

    def _change(self, known: Mapping[str, float], network: str, ends: float) -> dict[str, float]:
        now = self._timer()
        changed = {denied: end for denied, end in known.items() if end > now and denied != network}
        if ends > now:
            changed[network] = ends
        if len(changed) > MAX_DENIALS:
            raise InvalidParameter(f"{MAX_DENIALS} networks are denied already; add this one to client_deny_file.")
        return changed


def _read(content: bytes) -> dict[str, float]:
    """The denials in the content of the memory."""
    try:
        document = json.loads(content or b"{}")
        return {str(ip_network(network)): float(ends) for network, ends in document.items()}
    except (ValueError, AttributeError, TypeError) as error:
        log.error("the denials of clients cannot be read: %s", error)
        return {}
