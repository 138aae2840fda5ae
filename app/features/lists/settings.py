"""Lists of names: `POST /api/resolve` and `doi-proxy resolve`."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from app.features.options import MAX_COUNT, MAX_NAMES, MAX_WAIT, SettingsGroup


class BatchSettings(SettingsGroup):
    """Lists of names: `POST /api/resolve` and `doi-proxy resolve`."""

    batch_concurrency: int = Field(8, ge=1, le=1_000, description="Limit of lookups under way for one list.")
    batch_wait_timeout: float = Field(
        60.0,
        ge=0,
        le=MAX_WAIT,
        description="Seconds that the names of a list wait while the upstream accepts no queries. After that, they are "
        "`rate_limited` or `unverified`.",
    )
    batch_max_names: int = Field(1_000_000, ge=1, le=MAX_NAMES, description="Limit of names in one list.")
    batch_max_open: int = Field(
        16,
        ge=1,
        le=MAX_COUNT,
        description="Limit of lists that one worker process answers at a time, beside twice as many short ones.",
    )


SETTINGS: Final = BatchSettings
TABLES: Final = ("batch",)
