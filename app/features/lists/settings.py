"""Lists of names: `POST /api/resolve` and `doi-proxy resolve`."""

from __future__ import annotations

from pydantic import Field

from app.features.options import SettingsGroup


class BatchSettings(SettingsGroup):
    """Lists of names: `POST /api/resolve` and `doi-proxy resolve`."""

    batch_concurrency: int = Field(8, ge=1, le=1_000, description="Limit of lookups under way for one list.")
    batch_window: int = Field(256, ge=1, le=100_000, description="Limit of names of one list that wait for their rows.")
    batch_wait_timeout: float = Field(
        60.0,
        ge=0,
        description="Seconds that the names of a list wait while the upstream accepts no queries. After that, they are "
        "`rate_limited` or `unverified`.",
    )
    batch_memory_bytes: int = Field(
        16 * 1024 * 1024,
        ge=0,
        description="Memory for results of one list that the cache does not keep, in bytes; repeated names are not "
        "looked up again.",
    )
    batch_max_names: int = Field(1_000_000, ge=1, description="Limit of names in one list.")
    batch_max_line_bytes: int = Field(
        65_536, ge=1_024, description="Longest line, CSV record or JSON value of a list, in bytes."
    )
    batch_max_ratio: float = Field(
        100.0, ge=1, description="Largest size of a decompressed list in bytes, for each byte of the compressed list."
    )
    batch_read_ahead_bytes: int = Field(
        4 * 1024 * 1024,
        ge=65_536,
        description="Bytes of a list that are received before they are needed. A client that reads no answer until it "
        "has sent its whole list can send about this much.",
    )
    batch_max_array: int = Field(1_000, ge=1, description="Limit of rows in an answer that is one JSON array.")
    batch_max_open: int = Field(16, ge=1, description="Limit of lists that one worker process answers at a time.")
    batch_max_open_of_client: int = Field(4, ge=1, description="Limit of lists of one client among them.")
