"""Whether metadata of works are fetched."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from doi_proxy.features.options import SettingsGroup


class MetadataSettings(SettingsGroup):
    """Whether metadata of works are fetched."""

    metadata: bool = Field(
        False,
        description="Whether title, first author and year of a work are fetched from its registration agency: for "
        "the page of its record, and to compare a reference with it. Turn it on if the agencies may "
        "see which names are looked at.",
    )


SETTINGS: Final = MetadataSettings
TABLES: Final = ()
