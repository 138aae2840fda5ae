"""How long records are kept, and where."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from app.features.options import MAX_BYTES, MAX_LIFETIME, MAX_WAIT, SettingsGroup

#: The smallest store that can be set, in bytes.
MIN_STORE_BYTES: Final = 1024 * 1024


class CacheSettings(SettingsGroup):
    """How long records are kept, and where."""

    cache_ttl_floor: float = Field(
        0.0, ge=0, le=MAX_LIFETIME, description="Shortest time that a record is fresh, in seconds."
    )
    cache_ttl_ceiling: float = Field(
        86400.0, ge=0, le=MAX_LIFETIME, description="Longest time that a record is fresh, in seconds."
    )
    cache_negative_ttl: float = Field(
        60.0, ge=0, le=MAX_LIFETIME, description='Seconds for which "not found" is cached.'
    )
    cache_grace: float = Field(
        30 * 86400.0,
        ge=0,
        le=MAX_LIFETIME,
        description="Seconds after the end of its TTL in which a record can be served stale.",
    )
    cache_memory_bytes: int = Field(
        256 * 1024 * 1024, ge=0, le=MAX_BYTES, description="Memory for cached records, in bytes, for each process."
    )
    store_url: str = Field(
        "sqlite:///var/doi-proxy.sqlite3",
        description="Where records are kept: `memory:`, `sqlite:///path`, or a Valkey or Redis server "
        "(`valkey://host/0`, `valkey+unix:///path`, `valkey+cluster://host1,host2`, "
        "`valkey+sentinel://host1,host2/name`; docs/valkey.md).",
    )
    store_timeout: float = Field(
        0.1, gt=0, le=MAX_WAIT, description="Timeout of a Valkey or Redis command, in seconds."
    )
    store_max_bytes: int = Field(
        20 * 1024**3,
        ge=MIN_STORE_BYTES,
        le=MAX_BYTES,
        description="Size of the SQLite store after which records are evicted, in bytes; at most half of the free disk "
        "at the start, and of what is freed later, is added to the file.",
    )
