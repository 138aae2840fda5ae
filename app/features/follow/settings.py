"""A child that follows a parent: `doi-proxy cache pull`."""

from __future__ import annotations

from pydantic import Field

from app.features.options import SettingsGroup


class PullSettings(SettingsGroup):
    """A child that follows a parent: `doi-proxy cache pull`."""

    pull_page_timeout: float = Field(
        120.0, gt=0, description="Seconds for one page of a parent, from the connection to the last byte."
    )
    pull_busy_timeout: float = Field(
        600.0,
        ge=0,
        description="Seconds that a pull waits for one page of a parent that is busy (429 or 503). After that it ends, "
        "and the next pull continues.",
    )
    pull_max_bytes: int = Field(
        16 * 1024**3, ge=1, description="Bytes on the wire after which a pull ends; the next one continues."
    )
