"""`doi-proxy mcp` as a process of its own, in front of a fake upstream."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from mcp import StdioServerParameters

ROOT: Final = Path(__file__).resolve().parents[3]
#: For a start or an end of a process, in seconds.
DEADLINE: Final = 60


def environment() -> dict[str, str]:
    """The environment of this process without settings of the proxy."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DOI_PROXY_")}


def arguments(upstream_url: str, *more: str, store_url: str = "memory:") -> list[str]:
    free = ("--upstream-rate", "1000000", "--upstream-burst", "1000000")
    return ["-m", "doi_proxy", "mcp", "--upstream-url", upstream_url, "--store-url", store_url, *free, *more]


def stdio(upstream_url: str, *more: str, store_url: str = "memory:") -> StdioServerParameters:
    """The process that a client of the SDK starts."""
    return StdioServerParameters(
        command=sys.executable,
        args=arguments(upstream_url, *more, store_url=store_url),
        cwd=ROOT,
        env=environment(),
    )


@asynccontextmanager
async def started(*words: str, stdin: int = DEVNULL, stdout: int = DEVNULL) -> AsyncIterator[Process]:
    """A process with these arguments of Python. It is killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=ROOT, env=environment(), stdin=stdin, stdout=stdout, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
