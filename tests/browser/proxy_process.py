"""A real proxy in a process of its own, on a free port of 127.0.0.1, before the fake upstream."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.constants import RECHECK, command, split
from tests.ports import free_port

ROOT: Final = Path(__file__).resolve().parents[2]
#: Seconds until a started proxy answers, and until a stopped one has ended.
_PATIENCE: Final = 30.0
_BETWEEN_LOOKS: Final = 0.05
#: Pages are looked at, not counted: neither budget nor breaker is in their way.
_SETTINGS: Final = {
    "host": "127.0.0.1",
    "store-url": "memory:",
    "upstream-contact": "mailto:library@example.org",
    "upstream-rate": "1000000",
    "upstream-burst": "1000000",
    "upstream-breaker-failures": "1000000",
    RECHECK: 0,
}


@asynccontextmanager
async def proxy_before(upstream_url: str, **more: Any) -> AsyncIterator[str]:
    """The base URL of a proxy that queries this upstream, until the end. Its log may hold no traceback.

    `more` are further settings and constants, or `config` for a settings file.
    """
    port = free_port()
    settings = {**_SETTINGS, "port": str(port), "upstream-url": upstream_url, **more}
    constants, settings = split(settings)
    flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DOI_PROXY_")}
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *command(constants), "serve", *flags, cwd=ROOT, env=environment, stdout=log, stderr=log
        )
        try:
            await _answers(port, process)
            yield f"http://127.0.0.1:{port}"
            process.terminate()
            await asyncio.wait_for(process.wait(), _PATIENCE)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            log.seek(0)
            said = log.read().decode("utf-8", "replace")
            assert "Traceback" not in said, said


async def _answers(port: int, process: asyncio.subprocess.Process) -> None:
    """Wait until the process listens. If it ends first, the error has its log."""
    async with asyncio.timeout(_PATIENCE):
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(_BETWEEN_LOOKS)
            else:
                writer.close()
                return
    raise AssertionError("the proxy ended before it answered")
