"""What `/privacy` states about one instance: which of its settings decide what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PrivacyFacts:
    """The settings that `/privacy` puts into words."""

    #: The privacy level of the access log, None if there is no access log.
    log_level: int | None
    store: Literal["memory", "file", "server"]
    #: Days after the end of its TTL in which a record may be used.
    grace_days: int
    #: The hosts of the upstreams, none in sealed mode.
    hosts: tuple[str, ...]
    #: The lengths of the prefixes that count as one client.
    ipv4_prefix: int
    ipv6_prefix: int
    #: Whether countries are looked up.
    has_countries: bool
