"""How far a hot redirect travels: files, calls and crossings between the packages of app/, by each way to answer it.

    python -m bench.trace

A crossing is a call of a function in one package of app/ from a function in another one, whatever library lies between
the two. Also printed: how many modules decide a header that tells how long an answer may be kept.
"""

from __future__ import annotations

import ast
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from bench.in_process import in_process
from bench.names import HOT, path_of
from bench.wire import Connection

ROOT: Final = Path(__file__).resolve().parents[1]
APP: Final = f"{ROOT / 'app'}/"
#: Requests before the one that is traced: caches are full then, and the express lane has the reply.
WARM_UP: Final = 3
DECIDED: Final = ("cache-control", "expires", "vary", "age", "cache-status", "etag")
#: Modules that name such a header and decide none.
NOT_DECIDING: Final = frozenset(
    {
        "web/record_headers.py",  # the headers that a record cannot set
        "web/admin_gate.py",  # replaces them all on answers of /admin
        "web/probe.py",  # the answers with which `doctor` tests a front proxy
        "setup/doctor.py",
        "setup/remedies.py",
        "tracing/spans.py",  # reads
        "bulk/show.py",  # the age of an entry, a key in JSON
        "resolver/verdict.py",  # the age in a row of a list
        "lists/text_writing.py",
        "cli/batch_exchange.py",
        "assistants/server_names.py",
    }
)


class Trace:
    """What ran between `start` and `stop`."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.calls = self.crossings = 0

    def start(self) -> None:
        """Record every call of a Python function from here on."""
        sys.setprofile(self._record)

    def stop(self) -> None:
        """Record no more."""
        sys.setprofile(None)

    def _record(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(APP):
            return
        self.files[file.removeprefix(APP)] = None
        self.calls += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(APP):
            caller = caller.f_back
        if caller is None or package_of(caller.f_code.co_filename) != package_of(file):
            self.crossings += 1


def package_of(file: str) -> str:
    """The package of app/ that a file lies in."""
    return file.removeprefix(APP).partition("/")[0]


async def trace(question: Callable[[], Awaitable[Any]]) -> Trace:
    """One question, after some like it."""
    for _ in range(WARM_UP):
        await question()
    found = Trace()
    found.start()
    try:
        await question()
    finally:
        found.stop()
    return found


async def traces() -> dict[str, Trace]:
    """A hot redirect by each way."""
    found = {}
    path = path_of(HOT)
    for label, express in (("express lane", True), ("protocol", False)):
        async with in_process(express_lane=express) as one:
            one.keep([HOT], time.time())
            connection = Connection(one.application)
            found[label] = await trace(lambda connection=connection: connection.ask(path))  # type: ignore[misc]
    async with in_process(express_lane=False) as one:
        one.keep([HOT], time.time())
        found["plain ASGI"] = await trace(lambda: one.ask(path))
    return found


def deciders(header: str) -> list[str]:
    """The modules of app/ that write a header by its name."""
    found = []
    for path in sorted(Path(APP).rglob("*.py")):
        names = {
            node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Constant) and isinstance(node.value, (bytes, str))
        }
        module = str(path).removeprefix(APP)
        if header in names and module not in NOT_DECIDING:
            found.append(module)
    return found


def main() -> None:
    """Print both tables."""
    print(f"{'a hot redirect by':20} {'files':>6} {'calls':>6} {'crossings':>10}")
    for label, found in asyncio.run(traces()).items():
        print(f"{label:20} {len(found.files):6} {found.calls:6} {found.crossings:10}  {' '.join(found.files)}")
    print(f"\n{'header':20} {'decided in':>10}")
    for header in DECIDED:
        modules = deciders(header)
        print(f"{header:20} {len(modules):10}  {' '.join(modules)}")


if __name__ == "__main__":
    main()
