"""Limits of clients, and the networks that an operator denies."""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import ceil
from typing import Final

from doi_proxy.features.feature import Context, Feature, Opened, Service
from doi_proxy.features.limits.check import find_list_problems
from doi_proxy.features.limits.counts import ClientCounts
from doi_proxy.features.limits.denials import Denials
from doi_proxy.features.limits.limits import ClientLimits
from doi_proxy.features.limits.list_file import allowed_clients, denied_clients
from doi_proxy.features.limits.settings import LimitSettings
from doi_proxy.features.refusals import REFUSED
from doi_proxy.rationing.client_buckets import Rate
from doi_proxy.web.client_network import client_of

#: Requests of one client that can bypass the cache in a minute, or at once after an idle minute: a person who reloads a
#: record again and again sends fewer, and ten such clients are the whole rate of the budget.
BYPASSES: Final = 60.0
_SECONDS_A_MINUTE: Final = 60


class ClientRefreshes(Service):
    """Follows the denials of other workers, counts clients, and forgets their addresses."""

    def __init__(self, limits: ClientLimits, denials: Denials, counts: ClientCounts) -> None:
        self._limits = limits
        self._denials = denials
        self._counts = counts

    def tick(self) -> None:
        """Read the denials again if another worker changed them, count the clients that wait, and forget addresses."""
        self._denials.refresh()
        self._counts.refresh()
        self._limits.forget_addresses()

    def ready(self) -> Mapping[str, str]:
        """Whether the lists of networks are those of their files."""
        return {"client_lists": "broken" if self._limits.has_broken_list else "ok"} if self._limits.has_list else {}


def open_limits(context: Context) -> Opened:
    """The stages that admit clients and count them. Raises ConfigurationError for a list that cannot be read."""
    settings = context.settings.group(LimitSettings)
    limits = ClientLimits(
        requests=Rate(settings.client_rate, settings.client_burst) if settings.client_rate else None,
        bypasses=Rate(BYPASSES / _SECONDS_A_MINUTE, BYPASSES),
        allowed=allowed_clients(settings.client_allow_file, context.facts.store_url),
        denied=denied_clients(settings.client_deny_file, context.facts.store_url),
        clock=context.clock,
        refused=context.meter.counter(REFUSED),
    )
    counts = ClientCounts(client_of, context.clock, context.reloads.memories.get("clients"))
    denials = Denials(context.shared_file("denials.json"), time.monotonic, limits.deny)

    def deny(network: str, seconds: float) -> float:
        denials.deny(network, seconds)
        context.reloads.announce_change()
        return ceil(context.clock() + seconds)

    def list_ends() -> Mapping[str, float]:
        return {network: ceil(context.clock() + left) for network, left in denials.list().items()}

    context.admit = limits.admit
    context.deny, context.read_denials, context.read_shares = deny, list_ends, counts.shares
    context.reloads.on_change(denials.refresh)
    context.reloads.on_reload(lambda _: limits.reload())
    return Opened(stages=(limits, counts), services=(ClientRefreshes(limits, denials, counts),))


FEATURE: Final = Feature(
    "limits",
    "what one client may do: requests, bypasses of the cache, denied networks",
    open=open_limits,
    check=find_list_problems,
)
