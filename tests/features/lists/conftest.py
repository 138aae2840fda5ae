"""For the tests of lists: the machine may be slow."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def late_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error before the first row has its status, also if a busy machine takes more than a second to find it."""
    monkeypatch.setattr("app.features.texts.streamed_answer.HEAD_AFTER", 60.0)
