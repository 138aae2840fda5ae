"""Replication: `doi-proxy cache pull`."""

from __future__ import annotations

from pydantic import Field

from app.features.options import SettingsGroup


class ReplicationSettings(SettingsGroup):
    """Replication: `doi-proxy cache pull`."""

    replication_page_timeout: float = Field(
        120.0, gt=0, description="Seconds for one page of a primary, from the connection to the last byte."
    )
    replication_max_bytes: int = Field(
        16 * 1024**3, ge=1, description="Bytes on the wire after which a pull ends; the next one continues."
    )
