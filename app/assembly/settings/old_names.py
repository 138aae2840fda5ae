"""The settings of the release before this one that have a new name or are gone. They are read for one release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The release that renamed or removed the settings below. The next one empties both tables.
RELEASE: Final = "0.3"
#: The old name of a setting, and its new name.
RENAMED: Final[Mapping[str, str]] = {
    "admin_follow_token": "admin_replica_token",
    "batch_patience": "batch_wait_timeout",
    "mcp_patience": "mcp_timeout",
    "pull_max_bytes": "replication_max_bytes",
    "pull_page_timeout": "replication_page_timeout",
    "suggestion_patience": "suggestion_timeout",
    "upstream_patience": "upstream_stale_timeout",
    "upstream_queue_patience": "upstream_queue_timeout",
}
#: Settings that are constants now. A value of theirs is ignored.
REMOVED: Final = frozenset(
    {
        "native_busy_queries",
        "native_head_start",
        "native_idle_connections",
        "native_idle_timeout",
        "native_max_attempts",
        "native_max_lookups",
        "native_max_servers",
        "native_max_services",
        "native_pause_first",
        "native_pause_max",
        "native_service_grace",
        "native_service_patience",
        "native_service_ttl_ceiling",
        "native_service_ttl_floor",
        "native_udp_tries",
        "native_udp_wait",
        "pull_busy_timeout",
    }
)
