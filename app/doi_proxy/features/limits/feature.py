"""Limits of clients, and the networks that an operator denies."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field

from doi_proxy.errors import TooManyRequests
from doi_proxy.features.feature import Core, Feature, Others, Part
from doi_proxy.system.check import REFUSED, Finding, Inspection, Service
from doi_proxy.system.options import MAX_RATE, RELOADED, Settings, SettingsGroup

if TYPE_CHECKING:
    from doi_proxy.features.limits.limits import ClientLimits, Denials
    from doi_proxy.networks import NetworkList

#: Requests of one client that can bypass the cache in a minute, or at once after an idle minute: a person who reloads a
#: record again and again sends fewer, and ten such clients are the whole rate of the budget.
BYPASSES: Final = 60.0


class LimitSettings(SettingsGroup):
    """Limits of clients."""

    tables = ("client",)

    client_rate: float = Field(
        0.0,
        ge=0,
        le=MAX_RATE,
        json_schema_extra=RELOADED,
        description="Limit of one client's requests a second, answers from the cache included; `0` for no limit. A "
        "list counts as many as it has names, a text one for each kilobyte. "
        "Set it on a service that strangers reach.",
    )
    # Four seconds of a client's rate are saved up while it sends nothing. A page and the links that a reader opens from
    # it are some dozens of requests.
    client_burst: float = Field(
        default_factory=lambda known: min(max(100.0, 4.0 * known["client_rate"]), float(MAX_RATE)),
        ge=1,
        le=MAX_RATE,
        json_schema_extra=RELOADED,
        description="Requests that one idle client can send at once, if `client_rate` is set. If it is not set, "
        "it is what `client_rate` allows in 4 seconds, and 100 at least. Set it if readers get 429 "
        "for a page with many links.",
    )
    client_allow_file: Path | None = Field(
        None,
        json_schema_extra=RELOADED,
        description="File of networks, one a line, whose requests are not limited. A change takes effect without a "
        "reload. Set it if many readers share an address.",
    )
    client_deny_file: Path | None = Field(
        None,
        json_schema_extra=RELOADED,
        description="File of networks, one a line, whose requests get 403. A change takes effect without a reload. "
        "Set it to keep a crawler out.",
    )


class TooManyBypasses(TooManyRequests):
    """This client bypassed the cache too often; wait, or send the request without auth and cert."""

    token = "too-many-bypasses"
    title = "The client bypassed the cache too often"


class Limits(Feature, Service):
    """Admits clients, ends denials, and forgets the addresses of clients."""

    name = "limits"
    summary = "what one client may do: requests, bypasses of the cache, denied networks"
    settings = LimitSettings

    _limits: ClientLimits
    _denials: Denials

    @classmethod
    def check(cls, inspection: Inspection) -> Iterator[Finding]:
        """Lists of networks that cannot be used."""
        from doi_proxy.features.limits.limits import ALLOW_FILE, DENY_FILE

        for kind in (ALLOW_FILE, DENY_FILE):
            yield from kind.check(inspection)

    def open(self, core: Core, others: Others) -> Iterable[Part]:
        """The stage that admits clients. Raises ConfigurationError for a list that cannot be read."""
        from doi_proxy.features.limits.limits import ALLOW_FILE, DENY_FILE, ClientLimits, Denials
        from doi_proxy.rationing import Rate
        from doi_proxy.store.kept_file import KeptFile

        context = self.context

        def read_rate(settings: Settings) -> Rate | None:
            group = settings.group(LimitSettings)
            return Rate(group.client_rate, group.client_burst) if group.client_rate else None

        self._limits = ClientLimits(
            requests=read_rate(context.settings),
            bypasses=Rate(BYPASSES / 60, BYPASSES),
            clock=context.clock,
            refused=core.meter.counter(REFUSED),
        )
        self._lists: list[KeptFile[NetworkList]] = []
        self._denials = Denials(time.monotonic, self._limits.deny)
        reloads = context.reloads
        reloads.on_reload(lambda new: self._limits.set_rate(read_rate(new)), "client_rate", "client_burst")
        for kind, use in ((ALLOW_FILE, self._limits.set_allowed), (DENY_FILE, self._limits.set_denied)):
            self._lists.append(KeptFile(kind, use, context.settings))
            reloads.on_reload(self._lists[-1].reload, kind.setting)
        return self._limits, *self._lists, self

    def deny(self, network: str, seconds: float) -> float:
        """Deny a network for some seconds, in this process. Returns the end, in seconds since the epoch."""
        self._denials.deny(network, seconds)
        return ceil(self.context.clock() + seconds)

    def read_denials(self) -> Mapping[str, float]:
        """The end of each denial, by its network, in seconds since the epoch."""
        return {network: ceil(self.context.clock() + left) for network, left in self._denials.list().items()}

    def tick(self, _late: float) -> None:
        """End denials, and forget addresses."""
        self._denials.refresh()
        self._limits.forget_addresses()

    def ready(self) -> Mapping[str, str]:
        """Whether the lists of networks are those of their files."""
        states = {file.state for file in self._lists if file.path is not None}
        return {"client_lists": "broken" if "broken" in states else "ok"} if states else {}
