"""A command that waits ends by one signal, with a sentence and without a traceback."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.processes import ROOT
from tests.features.bundles.test_store_commands import PATIENCE

pytestmark = [pytest.mark.anyio, pytest.mark.process]


async def test_an_import_of_a_bundle_whose_rest_does_not_arrive(tmp_path: Path) -> None:
    store = tmp_path / "store"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "doi_proxy", "cache", "import", "-", "--format", "bundle", f"--store-url=sqlite:///{store}"),
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE):
        # The store is opened just before the bundle is read.
        while not store.exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0)
    process.terminate()
    assert process.stderr is not None
    # Standard input stays open.
    assert await asyncio.wait_for(process.stderr.read(), PATIENCE) == b"interrupted; run the same command again\n"
    assert await asyncio.wait_for(process.wait(), PATIENCE) == 130
