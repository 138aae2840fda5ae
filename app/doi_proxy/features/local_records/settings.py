"""Local records."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from doi_proxy.features.options import SettingsGroup


class LocalRecordSettings(SettingsGroup):
    """Local records."""

    local_records: Path | None = Field(
        None,
        description="TOML file, or folder of TOML files, with records that win over the cache and the upstream. A "
        "change takes effect without a reload. Set it to correct, add or withdraw names.",
    )


SETTINGS: Final = LocalRecordSettings
TABLES: Final = ()
