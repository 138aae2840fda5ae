"""Bulk work queries the upstream with its own priority."""

from __future__ import annotations

from typing import Any

import pytest

from app.bulk.source import BulkSource
from app.doi.name import HandleName
from app.errors import NotInBundle
from app.upstream.local import SealedSource
from app.upstream.source import Priority, Question

pytestmark = pytest.mark.anyio


async def test_every_question_of_bulk_work_has_its_priority() -> None:
    questions: list[Question] = []

    class Recording(SealedSource):
        async def ask(self, question: Question) -> Any:
            questions.append(question)
            return await super().ask(question)

    with pytest.raises(NotInBundle):
        await BulkSource(Recording()).ask(Question(HandleName("10.1000/1"), authoritative=True))
    assert questions == [Question(HandleName("10.1000/1"), authoritative=True, priority=Priority.BULK)]
