"""Bulk work queries the upstream with its own priority."""

from __future__ import annotations

from typing import Any

import pytest

from doi_names.name import HandleName
from doi_proxy.errors import NotInBundle
from doi_proxy.upstream.source import BulkSource, Priority, SealedSource, UpstreamQuery

pytestmark = pytest.mark.anyio


async def test_every_question_of_bulk_work_has_its_priority() -> None:
    queries: list[UpstreamQuery] = []

    class Recording(SealedSource):
        async def fetch(self, query: UpstreamQuery) -> Any:
            queries.append(query)
            return await super().fetch(query)

    with pytest.raises(NotInBundle):
        await BulkSource(Recording()).fetch(UpstreamQuery(HandleName("10.1000/1"), authoritative=True))
    assert queries == [UpstreamQuery(HandleName("10.1000/1"), authoritative=True, priority=Priority.BULK)]
