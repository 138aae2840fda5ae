"""Two Valkey servers and a Sentinel, which names the one that is the primary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.world.network import Address, Network
from tests.world.valkey import ADDRESS, Server, Valkey
from tests.world.valkey_data import Data, Failure, Reply

_SENTINEL: Final[Address] = ("127.0.0.1", 26379)
_REPLICA: Final[Address] = ("127.0.0.1", 6380)
_SERVICE: Final = "records"
#: The URL of their store.
SENTINEL_URL: Final = "valkey+sentinel://{}:{}/{}".format(*_SENTINEL, _SERVICE)


class Sentinel(Server):
    """See the module. `clock` gives seconds since the epoch."""

    def __init__(self, network: Network, clock: Callable[[], float]) -> None:
        super().__init__(network, _SENTINEL)
        self.primary, self._replica = Valkey(network, clock, ADDRESS), Valkey(network, clock, _REPLICA)
        self._replica.stop()

    def execute(self, words: list[bytes]) -> Reply:
        """See Server. It knows the command of redis-py that looks for a primary."""
        if words != [b"SENTINEL", b"MASTERS"]:
            return Failure("ERR unknown command")
        host, port = self.primary.address
        state = {"name": _SERVICE, "ip": host, "port": port, "flags": "master", "num-other-sentinels": 0}
        return [[str(text).encode() for pair in state.items() for text in pair]]

    def promote(self, file: Data) -> None:
        """The replica becomes the primary, with the data that it had got. The primary has ended."""
        self.primary, self._replica = self._replica, self.primary
        self.primary.ahead = self._replica.ahead
        self.primary.start(file)
