"""The seed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from doi_proxy.features.options import SettingsGroup


class BundleSettings(SettingsGroup):
    """The seed."""

    seed: Path | None = Field(
        None,
        description="NDJSON file of records to load at start, each as already expired. Set it if a new service "
        "begins where the upstream cannot be reached.",
    )


SETTINGS: Final = BundleSettings
TABLES: Final = ()
