"""How handle servers are queried by the native Handle protocol.

Some limits are constants beside the code that obeys them, because no operator needs another value: the 512 bytes of a
UDP packet, and how many sites, servers, interfaces and attributes a site value can have.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from app.features.options import SettingsGroup


class NativeSettings(SettingsGroup):
    """How handle servers are queried by the native Handle protocol."""

    # The reference client turns from UDP to TCP after 3 s.
    native_head_start: float = Field(
        2.0,
        gt=0,
        le=60,
        description="Seconds that a handle server can be silent before the next server or transport is queried as "
        "well. The first valid answer counts.",
    )
    native_max_attempts: int = Field(
        8,
        ge=1,
        le=100,
        description="Limit of servers and transports that are tried for one message to a service. Each one after the "
        "first needs a token of the upstream budget.",
    )
    # The reference client sends a message at 0, 0.5 and 1.5 s too.
    native_udp_wait: float = Field(
        0.5,
        gt=0,
        le=60,
        description="Seconds without an answer after which a message is sent by UDP again. Each wait is twice as long "
        "as the one before.",
    )
    native_udp_tries: int = Field(3, ge=1, le=10, description="How often a message is sent by UDP before it fails.")
    native_idle_connections: int = Field(
        64,
        ge=0,
        le=10_000,
        description="Idle connections to handle servers that one process keeps, for TCP and for the HTTP tunnel each.",
    )
    # Servers and firewalls that keep connections do so for a minute or more.
    native_idle_timeout: float = Field(
        30.0, gt=0, le=3600, description="Seconds for which an idle connection to a handle server is kept."
    )
    # A kept tunnel takes less time than UDP from about 20 queries on: its connection costs as much as a few of them.
    native_busy_queries: float = Field(
        20.0,
        ge=0,
        description="Queries in about a minute from which a server is queried through a kept HTTP tunnel in place of "
        "UDP.",
    )
    native_pause_first: float = Field(
        5.0,
        gt=0,
        description="Seconds for which a server's transport comes last after it failed. They double with each "
        "failure in a row.",
    )
    native_pause_max: float = Field(
        600.0, gt=0, description="Longest time for which a server's transport comes last after failures, in seconds."
    )
    native_max_servers: int = Field(
        10_000, ge=1, le=1_000_000, description="Handle servers whose speed and failures one process remembers."
    )
    native_max_services: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Services (sites of a prefix) that one process remembers; a large one counts as several.",
    )
    # Services of a handle system change rarely, so an hour is short.
    native_service_ttl_floor: float = Field(
        60.0,
        gt=0,
        description="Shortest time in seconds for which the service of a prefix, or the address of a "
        "server named by `hdl://`, is remembered.",
    )
    native_service_ttl_ceiling: float = Field(
        3600.0,
        gt=0,
        description="Longest time in seconds for which the service of a prefix, or the site "
        "information of a server named by `hdl://`, is remembered.",
    )
    # Records are served stale for longer. Servers can change their addresses in a week.
    native_service_grace: float = Field(
        7 * 86_400.0,
        ge=0,
        le=365 * 86_400.0,
        description="Seconds for which the last known servers of a prefix are used after the end of their TTL, if they "
        "cannot be looked up again.",
    )
    # The rest of `upstream_timeout` is for the name itself.
    native_service_patience: float = Field(
        4.0,
        gt=0,
        description="Seconds to wait for the lookup of a service whose last known servers can be used.",
    )
    # The reference software follows 20 service handles.
    native_max_lookups: int = Field(
        20,
        ge=2,
        le=1_000,
        description="Limit of queries for one name with `hdl:`: for its prefix, for service handles, after referrals, "
        "and for the name itself. The records that lead to it have the same limit.",
    )

    @model_validator(mode="after")
    def _order_native_times(self) -> Self:
        for shorter, longer in (
            ("native_pause_first", "native_pause_max"),
            ("native_service_ttl_floor", "native_service_ttl_ceiling"),
        ):
            if getattr(self, shorter) > getattr(self, longer):
                raise ValueError(f"{shorter} is longer than {longer}; exchange or correct them")
        return self
