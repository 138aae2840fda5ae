"""Title, first author and year on the page of a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from doi_names.name import HandleName
from doi_proxy.features.metadata.works import Works
from doi_proxy.resolver.options import Conditions
from doi_proxy.web.section import PageKind, Section

#: Seconds that the page of a record waits for its metadata.
PAGE_TIMEOUT: Final = 0.5


class WorkSection(Section):
    """See Section."""

    template = "work.html"

    def __init__(self, works: Works) -> None:
        self._works = works

    async def prepare(self, name: HandleName, client: str | None) -> None:
        """Nothing: a name that is not registered has no work."""

    async def prepare_record(self, name: HandleName, conditions: Conditions) -> None:
        """Fetch the work, if it arrives in time."""
        if name.is_doi and not conditions.only_cached:
            await self._works.find(name, conditions.client, PAGE_TIMEOUT)

    async def find_in_text(self, text: str, client: str | None) -> Sequence[HandleName]:
        """Find nothing."""
        return ()

    def read(self, kind: PageKind, name: HandleName | None, text: str) -> Mapping[str, Any]:
        """The work, if it is in memory."""
        work = None if kind != "values" or name is None else self._works.recall(name)
        return {} if work is None else {"work": work}

    def list_watched(self, name: HandleName) -> Sequence[HandleName]:
        """No other names."""
        return ()
