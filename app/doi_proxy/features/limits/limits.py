"""What one client may do: requests a second, requests that bypass the cache, and whether it is served at all.

A client is the network of its address, and pays with the networks that contain it (see find_accounts). Networks are
in memory alone: this module writes none into a log, a store or a metric.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from ipaddress import ip_network
from typing import Final

import msgspec

from doi_proxy.errors import ClientDenied, InvalidParameter, RateExceeded, TooManyRequests
from doi_proxy.features.limits.feature import TooManyBypasses
from doi_proxy.networks import NetworkList, parse_denied, parse_networks
from doi_proxy.rationing import FORGEABLE, Account, ClientBuckets, Rate
from doi_proxy.store.kept_file import FileKind
from doi_proxy.system.toml_text import FileProblem
from doi_proxy.web.request_path import client_of
from doi_proxy.web.stage import Admission, Explanation


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
        # Networks that can be denied at the same time. `client_deny_file` holds more.
        if len(ends) > 1_000:
            raise InvalidParameter("1000 networks are denied already; add this one to client_deny_file.")
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


def _list_file(
    setting: str, copy: str, parse: Callable[..., tuple[NetworkList, list[FileProblem]]]
) -> FileKind[NetworkList]:
    # The largest list. A line of a network takes less than 50 bytes.
    return FileKind(setting, copy, parse, 16 * 1024 * 1024, "merge the networks into larger ones")


ALLOW_FILE: Final = _list_file("client_allow_file", "client-allow.txt", parse_networks)
DENY_FILE: Final = _list_file("client_deny_file", "client-deny.txt", parse_denied)

#: The names of the limits, in RateLimit headers and in metrics.
RATE: Final = "rate"
BYPASS: Final = "bypass"
DENIED: Final = "denied"
#: Addresses whose standing is remembered. One more makes all of them be looked up again.
MAX_ADDRESSES: Final = 4_096


class _Standing(msgspec.Struct, frozen=True, gc=False):
    """What the lists say about the client at an address. `client` is None if no limit holds for it.

    `accounts` pay for its requests, where they are counted.
    """

    is_denied: bool
    client: str | None
    accounts: tuple[Account, ...]


class ClientLimits(Admission):
    """The limits of all clients. `clock` is in seconds."""

    def __init__(
        self,
        *,
        requests: Rate | None,
        bypasses: Rate,
        clock: Callable[[], float],
        refused: Callable[[str], None],
    ) -> None:
        """`requests` is None where requests are not counted. `refused` is called with the name of the limit."""
        self._clock = clock
        self._rate = requests
        self._requests = self._open_buckets()
        self._bypasses = ClientBuckets(BYPASS, bypasses, TooManyBypasses, clock)
        self._refused = refused
        self._allowed = self._denied = self._denied_for_now = NetworkList()
        #: By the hash of an address, which Python salts in each process, and only until `forget_addresses`.
        self._standings: dict[int, _Standing] = {}
        self._decide_admission()

    def set_allowed(self, networks: NetworkList) -> None:
        """Limit no client of these networks."""
        self._allowed = networks
        self._decide_admission()

    def set_denied(self, networks: NetworkList) -> None:
        """Refuse the requests of these networks."""
        self._denied = networks
        self._decide_admission()

    def deny(self, networks: Collection[str]) -> None:
        """Refuse the requests of these networks until the next call."""
        self._denied_for_now = NetworkList(ip_network(network) for network in networks)
        self._decide_admission()

    def set_rate(self, requests: Rate | None) -> None:
        """Count requests by another rate. Each client then has the whole burst."""
        if requests != self._rate:
            self._rate = requests
            self._requests = self._open_buckets()
            self._decide_admission()

    def _open_buckets(self) -> ClientBuckets | None:
        return None if self._rate is None else ClientBuckets(RATE, self._rate, RateExceeded, self._clock)

    def forget_addresses(self) -> None:
        """Drop what is known about single addresses. The lifespan calls this every second."""
        self._standings.clear()

    def _decide_admission(self) -> None:
        self._standings.clear()
        self.admits_all = self._requests is None and not self._denied and not self._denied_for_now

    def admit(self, address: str, *, is_forgeable: bool = False) -> None:
        """Count a request. Raises ClientDenied and RateExceeded."""
        # An account of a forged address would take the place of a client's, which then has its whole burst again.
        standing = self._judge(address, FORGEABLE) if is_forgeable else self._find(address)
        if standing.is_denied:
            self._refused(DENIED)
            raise ClientDenied
        if self._requests is not None and standing.accounts:
            self._take(self._requests, standing.accounts)

    def is_exempt(self, address: str) -> bool:
        """Whether client_allow_file has the address."""
        # No account is opened: the sender of a packet can be forged, and each would take a place.
        return address in self._allowed

    def explain_admission(self, address: str) -> Explanation:
        """What the lists and the rate say about a client. Nothing is counted."""
        settings = ("client_rate", "client_burst", "client_allow_file", "client_deny_file")
        standing = self._find(address)
        if standing.is_denied:
            by = "an operator, for a time" if address in self._denied_for_now else "client_deny_file"
            return Explanation("no: 403", f"Its network is denied by {by}.", settings, status=403)
        client = standing.client
        if client is None:
            return Explanation("yes", "client_allow_file has its network, so no limit holds.", settings)
        if self._requests is None:
            return Explanation("yes", f"No rate limits {client}.", settings)
        tokens = self._requests.tokens(standing.accounts)
        reason = f"{client} can send {tokens:.1f} requests at once now."
        if tokens >= 1:
            return Explanation("yes", reason, settings)
        return Explanation("no: 429", reason, settings, status=429)

    def passes(self, address: str) -> bool:
        """Count a request that gets a prepared answer. One that is refused is not counted here."""
        standing = self._standings.get(hash(address)) or self._find(address)
        if standing.is_denied:
            return False
        accounts = standing.accounts
        return self._requests is None or not accounts or not self._requests.take_or_wait(accounts)

    def charge(self, address: str, cost: float) -> None:
        """See Admission. Who has an answer is not refused it: the next requests wait instead."""
        standing = self._find(address)
        if self._requests is not None and standing.accounts:
            self._requests.charge(standing.accounts, cost)

    def charge_bypass(self, address: str) -> None:
        """Count a request that bypasses the cache. Raises TooManyBypasses."""
        client = self._find(address).client
        if client is not None:
            self._take(self._bypasses, self._bypasses.open(client))

    def may_renew(self, address: str) -> bool:
        """Count a bypass of the cache. False if the client has none left: a cached record is the answer then."""
        client = self._find(address).client
        return client is None or not self._bypasses.take_or_wait(self._bypasses.open(client))

    def _take(self, buckets: ClientBuckets, accounts: tuple[Account, ...]) -> None:
        try:
            buckets.take(accounts)
        except TooManyRequests as error:
            self._refused(error.quota.name)
            raise

    def _find(self, address: str) -> _Standing:
        """The standing of an address. The lists are searched once a second for each address."""
        key = hash(address)
        standing = self._standings.get(key)
        if standing is None:
            if len(self._standings) >= MAX_ADDRESSES:
                self._standings.clear()
            standing = self._standings[key] = self._judge(address, client_of(address))
        return standing

    def _judge(self, address: str, payer: str) -> _Standing:
        """What the lists say about an address whose requests are charged to `payer`."""
        client = None if address in self._allowed else payer
        accounts = () if client is None or self._requests is None else self._requests.open(client)
        return _Standing(address in self._denied or address in self._denied_for_now, client, accounts)
