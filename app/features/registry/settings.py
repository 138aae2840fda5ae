"""The files of registration agencies: `doi-proxy cache import`."""

from __future__ import annotations

from pydantic import Field

from app.features.options import SettingsGroup


class ImportSettings(SettingsGroup):
    """The files of registration agencies: `doi-proxy cache import`."""

    import_max_workers: int = Field(
        8, ge=1, le=64, description="Limit of processes that read the files. There are never more than processors."
    )
    import_run_rows: int = Field(
        250_000,
        ge=1_000,
        le=10_000_000,
        description="Records that one process sorts at a time. 250,000 take about 80 MB of its memory.",
    )
