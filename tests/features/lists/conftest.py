"""For the tests of lists: the machine may be slow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from doi_proxy.system import progress
from tests.fake_upstream import FakeUpstream
from tests.features.lists.command_bench import PATIENCE, Bench


@pytest.fixture(autouse=True)
def late_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error before the first row has its status, also if a busy machine takes more than a second to find it."""
    monkeypatch.setattr("doi_proxy.list_formats.streamed_answer.HEAD_AFTER", 60.0)


@pytest.fixture
async def bench(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    # The names under way are finished, however busy the machine is.
    monkeypatch.setattr(progress, "GRACE", PATIENCE)
    async with FakeUpstream() as upstream:
        yield Bench(tmp_path, upstream, capfd)
