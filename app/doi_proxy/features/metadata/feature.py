"""What a work is, from its registration agency, and whether a reference is about it."""

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
    from doi_proxy.features.metadata.match import Compared
    from doi_proxy.upstream.source import ClientNetwork, Priority

    Compare = Callable[[HandleName, str, ClientNetwork, Priority], Awaitable[Compared]]


class MetadataSettings(SettingsGroup):
    """Whether metadata of works are fetched."""

    metadata: bool = Field(
        True,
        description="Whether a work is looked up at its registration agency: for the page of its record, and to "
        "compare a reference with it. It needs `upstream_contact`, and is off with `mode = sealed` and "
        "`privacy_level = 3`. Turn it off if the agencies may not see which names are looked at.",
    )


class Metadata(Feature):
    """The works of one process, the section of the page of a record, and what compares references."""

    name = "metadata"
    summary = "what a work is, from its registration agency, and whether it is the one that a reference cites"
    settings = MetadataSettings

    #: What compares a reference with the work of its name. None if no metadata are fetched.
    compare: Compare | None = None

    @classmethod
    def is_on(cls, settings: Settings) -> bool:
        """Whether works are looked up. An agency gets the contact with each name, and in sealed mode nothing."""
        is_wanted = settings.group(MetadataSettings).metadata and settings.privacy_level < 3
        return is_wanted and settings.mode == "online" and settings.upstream_contact is not None

    def open(self, core: Core, others: Others) -> Iterable[Part]:
        """Open what fetches works."""
        from doi_proxy.features.metadata.works import OpenWorks, WorkSection

        count = core.meter.counter(
            CounterData(
                "metadata_fetches", "Fetches of metadata, by result.", "result", ("work", "none", "failed", "refused")
            )
        )
        works = OpenWorks(self.context.settings, core, count, self.context.clock)
        self.compare = works.compare
        return WorkSection(works), works


@asynccontextmanager
async def open_comparison(settings: Settings, core: Core) -> AsyncIterator[Compare | None]:
    """What compares a reference with the work of its name, for a command. None if no works are looked up."""
    if not Metadata.is_on(settings):
        yield None
        return
    from doi_proxy.features.metadata.works import OpenWorks

    works = OpenWorks(settings, core)
    await works.load()
    try:
        yield works.compare
    finally:
        await works.stop()
        await works.save()
