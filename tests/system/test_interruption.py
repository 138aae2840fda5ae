"""A command that waits ends by one SIGINT or SIGTERM, with a sentence and without a traceback."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tests.fake_upstream import FakeUpstream
from tests.features.admin.test_store_commands import PATIENCE, ROOT, flags, serving, settings_for

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


async def test_a_drill_that_sigterm_ends_refuses_no_more_queries(tmp_path: Path) -> None:
    async with FakeUpstream() as upstream:
        settings = settings_for(upstream, f"sqlite:///{tmp_path}/store", admin_token=TOKEN)
        with serving(settings) as proxy:
            server = f"http://127.0.0.1:{proxy.port}"
            given = [*flags(settings), "--admin-token", TOKEN]
            process = await command("drill", "--refuse", "--people", "--seconds", "3600", "--server", server, *given)
            names = count()
            while (await proxy.ask(f"/10.5555/{next(names)}")).status == 404:
                pass
            await interrupt(process, signal.SIGTERM)
            assert (await proxy.ask(f"/10.5555/{next(names)}")).status == 404
