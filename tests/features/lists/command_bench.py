"""`doi-proxy resolve` with a store in a folder and a fake upstream, in this process or in one of its own."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.features.lists.command import add_resolve_arguments, read_choice
from doi_proxy.features.lists.resolve_lists import resolve_lists
from doi_proxy.system.options import ENV_PREFIX
from tests.constants import changed, command, split
from tests.fake_upstream import FakeUpstream
from tests.parts import command_context

ROOT: Final = Path(__file__).resolve().parents[3]
#: Seconds after which a test that waits for an event fails.
PATIENCE: Final = 60
URL: Final = "https://example.org/"


class Bench:
    """A folder with a store, and a fake upstream. Commands run in this process, except those of `start`."""

    def __init__(self, folder: Path, upstream: FakeUpstream, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.upstream = upstream
        self.capture = capture
        self.output = folder / "rows"
        self.settings: dict[str, Any] = {
            "store_url": f"sqlite:///{folder}/store.sqlite3",
            "upstream_url": upstream.url,
            "upstream_rate": 1e6,
            "upstream_burst": 1e6,
            "upstream_contact": "mailto:library@example.org",
        }

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def numbered(self, count: int) -> Path:
        """A list of names that exist."""
        for number in range(count):
            self.upstream.put(f"10.5555/{number}", url=f"{URL}{number}")
        return self.write("list.txt", "".join(f"10.5555/{number}\n" for number in range(count)))

    def resumable(self, path: Path) -> tuple[str | Path, ...]:
        """The arguments of a run whose rows go to the output."""
        return path, "--output", self.output

    async def run(self, *arguments: str | Path, **settings: Any) -> Ended:
        """Run a command. Its errors are part of what it writes to standard error, as `main` prints them."""
        parser = argparse.ArgumentParser()
        add_resolve_arguments(parser)
        self.capture.readouterr()
        try:
            choice = read_choice(parser.parse_args(list(map(str, arguments))))
            constants, settings = split(self.settings | settings)
            async with asyncio.timeout(PATIENCE):
                with changed(constants):
                    status = await resolve_lists(command_context(Settings(**settings)), choice)
        except DoiProxyError as error:
            output, errors = self.capture.readouterr()
            return Ended(2 if isinstance(error, ConfigurationError) else 1, output, errors + error.message)
        return Ended(status, *self.capture.readouterr())

    async def start(self, *arguments: str | Path, **more: Any) -> asyncio.subprocess.Process:
        """Run a command in a process of its own."""
        constants, settings = split(self.settings)
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
        words = [*command(constants), "resolve", *map(str, arguments), *flags]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
        return await asyncio.create_subprocess_exec(*words, cwd=ROOT, env=environment, **pipes)

    async def arrived(self, name: str) -> None:
        """Wait until a query has arrived. A process takes its time to start on a busy machine."""
        async with asyncio.timeout(PATIENCE):
            while not self.upstream.queries(name):
                with suppress(TimeoutError):
                    await self.upstream.arrived(name)

    async def rows_written(self, count: int) -> None:
        """Wait until the output has this many lines."""
        await until(lambda: self.output.exists() and self.output.read_bytes().count(b"\n") >= count)

    async def said(self, text: str) -> None:
        """Wait until a command in this process has written this text to standard error."""
        errors = ""

        def holds() -> bool:
            nonlocal errors
            errors += self.capture.readouterr().err
            return text in errors

        await until(holds)

    def inputs(self) -> list[str]:
        """The inputs of the rows in the output."""
        return [json.loads(line)["input"] for line in self.output.read_text().splitlines()]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - neither a file nor the captured output has an event
            await asyncio.sleep(0)


class Ended:
    """A process that has ended."""

    def __init__(self, status: int | None, output: str, errors: str) -> None:
        self.status, self.output, self.errors = status, output, errors
        assert "Traceback" not in self.errors, self.errors

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output.splitlines()]


async def end_of(process: asyncio.subprocess.Process, stdin: bytes | None = None) -> Ended:
    output, errors = await asyncio.wait_for(process.communicate(stdin), PATIENCE)
    return Ended(process.returncode, (output or b"").decode(), (errors or b"").decode())
