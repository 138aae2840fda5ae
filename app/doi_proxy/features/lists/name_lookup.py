"""The lookup of one name of a batch: what a caller requests, how long the name waits, and its registration agency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from doi_names.errors import InvalidName
from doi_names.name import HandleName, fold
from doi_proxy import errors
from doi_proxy.resolver.destination import Destinations
from doi_proxy.resolver.options import Conditions
from doi_proxy.resolver.resolution import UNCONFIRMED, Origin
from doi_proxy.upstream.source import ClientNetwork, Priority

#: The registration agency: not looked up, from the cache alone, or with queries about prefixes.
AgencySource = Literal["none", "cached", "any"]
#: Prefixes that are remembered. A list of 100,000 names has about 3,000.
MAX_PREFIXES: Final = 10_000
#: Answers that do not show that the upstream works.
_WITHOUT_QUERY = frozenset({Origin.HIT, Origin.LOCAL}) | UNCONFIRMED
#: Failures without an attempt to query the upstream.
_UNRELATED = (errors.NotCached, errors.NotInBundle, errors.PrefixDenied)


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """The limits of one batch."""

    #: Lookups that are under way.
    concurrency: int
    #: Seconds that names wait while the upstream accepts no queries, from its first failure since an answer.
    timeout: float
    #: Inputs that wait for their rows.
    window: int = 256
    #: Memory for judgements that the cache does not keep, in bytes: a repeated name is not looked up again.
    memory_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """What a caller requests about each name."""

    #: The client that upstream queries are charged to.
    client: ClientNetwork = None
    #: Whether the cache alone answers. A name outside the cache is unverified.
    only_cached: bool = False
    #: Whether the inputs are names as they are. Otherwise "%" begins an escape.
    literal: bool = False
    #: Whether rows have suggestions.
    suggests: bool = False
    #: Whether suggested names are looked up.
    checks: bool = False
    #: Whether rows say if their reference is about the work.
    matches: bool = False
    #: Whether the rows end before the next whose suggestions are checked, or whose reference is compared.
    is_stopped: Callable[[], bool] = lambda: False
    agency: AgencySource = "cached"
    #: The priority of queries about names.
    priority: Priority = Priority.BULK


def agency_source(fields: Sequence[str], *, is_named: bool, only_cached: bool) -> AgencySource:
    """Where agencies come from. Prefixes are queried only for a caller that names the member of a row."""
    if "ra" not in fields:
        return "none"
    return "any" if is_named and not only_cached else "cached"


class UpstreamWait:
    """The time since which the upstream has accepted no query of a batch. All names of the batch share the timeout.

    With a timeout for each name, a list of 100,000 names would take days while the upstream is down.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._since: float | None = None
        self._is_broken = False

    def record_answer(self, origin: Origin) -> None:
        """A name has been answered."""
        if origin not in _WITHOUT_QUERY:
            self._since = None
            self._is_broken = False

    def record_failure(self, error: errors.CouldNotVerify, began: float, now: float) -> float:
        """A lookup that began at `began` has failed. Returns the seconds that its name may still wait, at least 0."""
        if isinstance(error, _UNRELATED):
            return 0.0
        if error.concerns_name:
            # The upstream has answered, so it works for other names; not if this was the probe of an open breaker:
            # an upstream that fails for every name would hold a list for 15 s a name.
            self._since = self._since if self._is_broken else None
            return 0.0
        self._is_broken = self._is_broken or isinstance(error, errors.BreakerOpen)
        if self._since is None:
            self._since = began
        return max(0.0, self._timeout - (now - self._since))


class AgencyLookup:
    """Finds agencies in the records of prefixes and service handles."""

    def __init__(self, destinations: Destinations, options: BatchOptions) -> None:
        self._prefixes = destinations.prefixes
        self._is_off = options.agency == "none"
        only_cached = options.agency == "cached"
        self._conditions = Conditions(priority=Priority.BULK, client=options.client, only_cached=only_cached)
        self._agencies: dict[str, str | None] = {}

    def is_known(self, name: HandleName) -> bool:
        """Whether `find_now` has the answer, so `find` is not needed."""
        return self._is_off or fold(name.prefix) in self._agencies

    def find_now(self, name: HandleName) -> str | None:
        """The agency of a name whose prefix was looked up. None if it is not known."""
        return self._agencies.get(fold(name.prefix))

    async def find(self, name: HandleName) -> str | None:
        """The agency of a name. None if it is not known. A prefix without an answer is not looked up again."""
        if self.is_known(name):
            return self.find_now(name)
        try:
            agency = await self._prefixes.find_agency(name.prefix, self._conditions)
        except (errors.CouldNotVerify, InvalidName):
            agency = None
        if len(self._agencies) >= MAX_PREFIXES:
            self._agencies.clear()
        self._agencies[fold(name.prefix)] = agency
        return agency
