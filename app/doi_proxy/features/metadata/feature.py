"""Title, first author and year of a work, from its registration agency."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from doi_proxy.features.feature import Context, Core, Feature, Opened, required
from doi_proxy.features.metadata.metrics import FETCHES
from doi_proxy.features.metadata.settings import MetadataSettings
from doi_proxy.features.options import Settings
from doi_proxy.features.suggestions.suggested_names import SuggestedNames

if TYPE_CHECKING:
    from doi_names.name import HandleName
    from doi_proxy.features.metadata.match import Match

    Compare = Callable[[HandleName, str, str | None], Awaitable[tuple[Match, str | None]]]


def _is_on(settings: Settings) -> bool:
    """Whether metadata are fetched. In sealed mode, nothing is."""
    return settings.group(MetadataSettings).metadata and settings.mode == "online"


def open_metadata(context: Context) -> Opened:
    """The section of the page of a record."""
    # Only a proxy that fetches metadata needs these.
    from doi_proxy.features.metadata.opening import open_works  # noqa: PLC0415
    from doi_proxy.features.metadata.section import WorkSection  # noqa: PLC0415

    names, count = required(context.find(SuggestedNames)), context.meter.counter(FETCHES)
    service = open_works(context.settings, context.core, names, count, context.clock)
    context.provide(service)
    return Opened(sections=(WorkSection(service.works),), services=(service,))


def find_comparison(context: Context) -> Compare | None:
    """What compares a reference with the work of its name. None if no metadata are fetched."""
    if not _is_on(context.settings):
        return None
    from doi_proxy.features.metadata.opening import OpenWorks  # noqa: PLC0415 - as above

    return required(context.find(OpenWorks)).works.compare


@asynccontextmanager
async def open_comparison(
    settings: Settings, core: Core, names: SuggestedNames, *, waits: bool = False
) -> AsyncIterator[Compare | None]:
    """The same for a command. With `waits`, a fetch waits for room in its share of the budget."""
    if not _is_on(settings):
        yield None
        return
    from doi_proxy.features.metadata.opening import open_works  # noqa: PLC0415 - as above

    service = open_works(settings, core, names, waits=waits)
    await service.works.load()
    try:
        yield service.works.compare
    finally:
        await service.stop()
        await service.works.save()


def _sample_facts() -> dict[str, dict[str, Any]]:
    """The facts of a sample of the block, by its template."""
    return {"work": {"work": {"title": "The DOI Handbook", "author": "Paskin", "year": 2006}}}


FEATURE: Final = Feature(
    "metadata",
    "title, first author and year of a work, from its registration agency",
    needs=("suggestions",),
    is_on=_is_on,
    open=open_metadata,
    samples=_sample_facts,
)
