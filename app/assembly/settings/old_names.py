"""The settings of the release before this one that have a new name or are gone. They are read for one release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The release that renamed or removed the settings below. The next one empties both tables.
RELEASE: Final = "0.3"
#: The old name of a setting, and its new name.
RENAMED: Final[Mapping[str, str]] = {
    "batch_patience": "batch_wait_timeout",
    "upstream_patience": "upstream_stale_timeout",
    "upstream_queue_patience": "upstream_queue_timeout",
}
#: Settings that are constants now. A value of theirs is ignored.
REMOVED: Final = frozenset(
    {
        "admin_wrong_burst",
        "admin_wrong_rate",
        "batch_max_array",
        "batch_max_line_bytes",
        "batch_max_open_of_client",
        "batch_max_ratio",
        "batch_memory_bytes",
        "batch_read_ahead_bytes",
        "batch_window",
        "branding_german_article",
        "bypass_rate",
        "cache_reload_age",
        "client_ipv4_prefix",
        "client_ipv6_prefix",
        "import_max_workers",
        "import_run_rows",
        "library_cookie_seconds",
        "local_records_max_bytes",
        "mcp_max_calls",
        "mcp_max_line_characters",
        "mcp_max_lines",
        "mcp_max_message_bytes",
        "mcp_max_result_bytes",
        "mcp_patience",
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
        "otel_queue_spans",
        "otel_timeout",
        "pull_busy_timeout",
        "pull_max_bytes",
        "pull_page_timeout",
        "suggestion_concurrency",
        "suggestion_patience",
        "suggestion_timeout",
        "upstream_allotment",
        "upstream_connect_timeout",
        "upstream_failure_memory_bytes",
        "upstream_failure_ttl",
        "upstream_max_answer_bytes",
        "upstream_pause_first",
        "upstream_pause_max",
        "upstream_read_timeout",
        "upstream_request_timeout",
        "upstream_reserved_share",
        "web_compression_memory_bytes",
        "web_compression_min_bytes",
        "web_parse_max_bytes",
        "web_parse_max_names",
    }
)
