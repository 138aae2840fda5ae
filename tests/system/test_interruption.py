"""A command that waits ends by one SIGINT or SIGTERM, with a sentence and without a traceback."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.features.admin.test_store_commands import PATIENCE, ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.process]

TOKEN: Final = "correct-horse-battery-staple"
BOTH: Final = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


async def command(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app", *arguments,
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


async def interrupt(process: asyncio.subprocess.Process, number: signal.Signals) -> str:
    """What a process writes to standard error until its end. Standard input stays open."""
    process.send_signal(number)
    assert process.stderr is not None
    errors = await asyncio.wait_for(process.stderr.read(), PATIENCE)
    assert await asyncio.wait_for(process.wait(), PATIENCE) == 130
    assert b"Traceback" not in errors
    return errors.decode()


@BOTH
async def test_an_import_of_a_bundle_whose_rest_does_not_arrive(tmp_path: Path, number: signal.Signals) -> None:
    store = tmp_path / "store"
    process = await command("cache", "import", "-", "--format", "bundle", f"--store-url=sqlite:///{store}")
    async with asyncio.timeout(PATIENCE):
        # The store is opened just before the bundle is read.
        while not store.exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0)
    assert await interrupt(process, number) == "interrupted; run the same command again\n"
