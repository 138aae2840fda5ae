"""Registry records that two workers answer with from memory: an import and a purge take effect in both."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.clock import Clock
from tests.cluster.conftest import StartProxy
from tests.cluster.processes import ROOT, Proxy, until
from tests.registry_records import FILE_DATE, write_registry

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.process]

NAME: Final = "10.5072/known"
OLD: Final = "https://www.example.org/old"
NEW: Final = "https://www.example.org/new"
#: Answers in a row after which both workers have most likely answered.
IN_A_ROW: Final = 30
PATIENCE: Final = 30.0


async def every_answer(proxy: Proxy, holds: Callable[[int, str | None], bool]) -> None:
    async def all_hold() -> bool:
        answers = [await proxy.ask(f"/{NAME}") for _ in range(IN_A_ROW)]
        return all(holds(answer.status, answer.location) for answer in answers)

    await until(all_hold, PATIENCE, "every answer of both workers is the new one")


async def test_an_import_and_a_purge_take_effect_in_both_workers(
    tmp_path: Path, store_file: str, start_proxy: StartProxy
) -> None:
    path = tmp_path / "store.sqlite3"
    write_registry(path, Clock(), {NAME: OLD})
    proxy = start_proxy("http://127.0.0.1:9", store_file, workers=2, mode="sealed")
    await proxy.ready()
    await every_answer(proxy, lambda status, location: (status, location) == (302, OLD))
    write_registry(path, Clock(), {NAME: NEW}, date=FILE_DATE + 1)
    await every_answer(proxy, lambda status, location: (status, location) == (302, NEW))
    purge = [sys.executable, "-m", "app", "cache", "purge", "--store-url", store_file, NAME]
    await asyncio.to_thread(subprocess.run, purge, cwd=ROOT, check=True, capture_output=True, timeout=PATIENCE)
    await every_answer(proxy, lambda status, _: status == 504)
