"""Title, first author and year on the page of a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from doi_names.name import HandleName
from doi_proxy.features.metadata.works import Works
from doi_proxy.resolver.options import Conditions
from doi_proxy.web.section import PageKind, Section

#: Seconds that the page of a record waits for its metadata. The records of a new prefix and the answer of an agency
#: take one to two. A person would rather wait for them than open the page twice.
PAGE_TIMEOUT: Final = 2.0


class WorkSection(Section):
    """See Section."""

    template = "work.html"
    comes_first = True

    def __init__(self, works: Works) -> None:
        self._works = works

    async def prepare_record(self, name: HandleName, conditions: Conditions) -> None:
        """Fetch the work, if it arrives in time."""
        if name.is_doi and not conditions.only_cached:
            await self._works.find(name, conditions.client, PAGE_TIMEOUT)

    def read(self, kind: PageKind, name: HandleName | None, text: str) -> Mapping[str, Any]:
        """The work, if it is in memory, else whether a later page may have it."""
        if kind != "values" or name is None:
            return {}
        work = self._works.recall(name)
        is_pending = work is None and self._works.may_find(name)
        return {"work": work, "is_pending": is_pending} if work is not None or is_pending else {}
