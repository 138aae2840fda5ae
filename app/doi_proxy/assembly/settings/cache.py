"""How long records are kept, and where."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from doi_proxy.system.options import MAX_BYTES, MAX_LIFETIME, SettingsGroup
from doi_proxy.system.setting_values import Duration, Size

#: The smallest store that can be set, in bytes.
MIN_STORE_BYTES: Final = 1024 * 1024


class CacheSettings(SettingsGroup):
    """How long records are kept, and where."""

    cache_ttl_floor: Duration = Field(
        0.0,
        ge=0,
        le=MAX_LIFETIME,
        description="Shortest time that a record is fresh. Raise it if records with short TTLs use up the budget.",
    )
    cache_ttl_ceiling: Duration = Field(
        86400.0,
        ge=0,
        le=MAX_LIFETIME,
        description="Longest time that a record is fresh. Lower it if a changed target must be seen sooner.",
    )
    cache_negative_ttl: Duration = Field(
        60.0,
        ge=0,
        le=MAX_LIFETIME,
        description='Time for which "not found" is cached. Lower it if names are requested right after they are '
        "registered.",
    )
    cache_grace: Duration = Field(
        30 * 86400.0,
        ge=0,
        le=MAX_LIFETIME,
        description="Time after the end of its TTL in which a record can be served stale. Raise it where outages "
        "are long, and lower it if an old target is worse than none.",
    )
    cache_memory_bytes: Size = Field(
        256 * 1024 * 1024,
        ge=0,
        le=MAX_BYTES,
        description="Memory for cached records, for each process. Change it with the memory of the machine.",
    )
    store_url: str = Field(
        "sqlite:///var/doi-proxy.sqlite3",
        description="Where records are kept: `memory:`, `sqlite:///path`, or a Valkey or Redis server "
        "(`valkey://host/0`, `valkey+unix:///path`, `valkey+cluster://host1,host2`, "
        "`valkey+sentinel://host1,host2/name`; docs/valkey.md). Change it if several machines share "
        "the records, or another disk keeps them.",
    )
    store_max_bytes: Size = Field(
        20 * 1024**3,
        ge=MIN_STORE_BYTES,
        le=MAX_BYTES,
        description="Size of the SQLite store, with its write-ahead log, above which records are evicted. The file "
        "grows by at most half of the disk space that is free at the start or is freed later. Lower it if other "
        "programs need the disk.",
    )
