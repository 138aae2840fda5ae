"""The lifespan of an application."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from app.assembly.settings import Settings
from app.main import create
from tests.releases.stores import unpack_file

pytestmark = pytest.mark.anyio


class Heard(logging.Handler):
    """Waits for a log line with certain words."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self._words = words
        self.event = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        if self._words in record.getMessage():
            self.event.set()


async def test_a_service_rewrites_the_store_of_an_earlier_release(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = unpack_file("0.1.0", tmp_path)
    heard = Heard("The store has format")
    caplog.set_level(logging.INFO)
    logging.getLogger("app.features.rewriting.rewriting").addHandler(heard)
    try:
        application = create(Settings(store_url=f"sqlite:///{store}", mode="sealed"))
        fastapi: Any = application._operations.app
        async with asyncio.timeout(30), fastapi.router.lifespan_context(fastapi):
            await heard.event.wait()
    finally:
        logging.getLogger("app.features.rewriting.rewriting").removeHandler(heard)
