"""Title, first author and year of a work, from its registration agency."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pydantic import Field

from doi_proxy.features.feature import Core, Feature, Others, Part
from doi_proxy.system.check import CounterData
from doi_proxy.system.options import Settings, SettingsGroup

if TYPE_CHECKING:
    from doi_names.name import HandleName
    from doi_proxy.features.metadata.match import Match

    Compare = Callable[[HandleName, str, str | None], Awaitable[tuple[Match, str | None]]]


class MetadataSettings(SettingsGroup):
    """Whether metadata of works are fetched."""

    metadata: bool = Field(
        False,
        description="Whether title, first author and year of a work are fetched from its registration agency: for "
        "the page of its record, and to compare a reference with it. Turn it on if the agencies may "
        "see which names are looked at.",
    )


class Metadata(Feature):
    """The works of one process, and the section of the page of a record."""

    name = "metadata"
    summary = "title, first author and year of a work, from its registration agency"
    settings = MetadataSettings

    #: What compares a reference with the work of its name. None if no metadata are fetched.
    compare: Compare | None = None

    @classmethod
    def is_on(cls, settings: Settings) -> bool:
        """Whether metadata are fetched. In sealed mode, nothing is."""
        return settings.group(MetadataSettings).metadata and settings.mode == "online"

    def open(self, core: Core, others: Others) -> Iterable[Part]:
        """Open what fetches works."""
        from doi_proxy.features.metadata.works import WorkSection, open_works

        count = core.meter.counter(
            CounterData(
                "metadata_fetches", "Fetches of metadata, by result.", "result", ("work", "none", "failed", "refused")
            )
        )
        service = open_works(self.context.settings, core, count, self.context.clock)
        self.compare = service.works.compare
        return WorkSection(service.works), service


@asynccontextmanager
async def open_comparison(settings: Settings, core: Core, *, waits: bool = False) -> AsyncIterator[Compare | None]:
    """What compares a reference with the work of its name, for a command. None if no metadata are fetched.

    With `waits`, a fetch waits for room in its share of the budget.
    """
    if not Metadata.is_on(settings):
        yield None
        return
    from doi_proxy.features.metadata.works import open_works

    service = open_works(settings, core, waits=waits)
    await service.works.load()
    try:
        yield service.works.compare
    finally:
        await service.stop()
        await service.works.save()
