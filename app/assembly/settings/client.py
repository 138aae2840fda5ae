"""The connections of clients, and their share of the upstream."""

from __future__ import annotations

from pydantic import Field

from app.features.options import MAX_COUNT, MAX_WAIT, SettingsGroup


class ClientSettings(SettingsGroup):
    """The connections of clients, and their share of the upstream."""

    client_max_connections: int = Field(
        256,
        ge=1,
        le=MAX_COUNT,
        description="Open connections of one client; the addresses in `trusted_proxies` have no such limit.",
    )
    client_head_timeout: float = Field(
        15.0,
        gt=0,
        le=MAX_WAIT,
        description="Seconds from the connection, or from the first byte, in which the head of a request must arrive.",
    )
    client_body_timeout: float = Field(
        30.0,
        gt=0,
        le=MAX_WAIT,
        description="Seconds without progress after which the proxy stops waiting for the body of a request.",
    )
    client_write_timeout: float = Field(
        30.0,
        gt=0,
        le=MAX_WAIT,
        description="Seconds after which the connection of a client that does not read its answer is closed.",
    )
    client_idle_timeout: float = Field(
        75.0,
        gt=0,
        le=MAX_WAIT,
        description="Seconds after which an idle connection is closed; should exceed the 60 s of nginx.",
    )
