"""Journeys through app/: what a request or a command enters, by files, classes and crossings.

*Files* are those of app/ with a function that runs. *Classes* are those whose methods run, inherited ones counted for
the class that defines them. A *crossing* is a call from a file of app/ into another one, whatever library lies between;
a coroutine that continues after a wait is called again. Each journey runs after the same one for other names: then
caches are full and imports are done.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

import msgspec

from bench.in_process import InProcess, in_process
from bench.names import HOT, path_of
from bench.wire import Wire
from doi_proxy.commands.main import main as run_command
from tests.fake_upstream import FakeUpstream

ROOT: Final = Path(__file__).resolve().parents[1]
APP: Final = f"{ROOT / 'app'}/"
TABLE: Final = ROOT / "bench" / "journeys.json"
#: Runs before the one that is traced.
WARM_UP: Final = 3
_TOKEN: Final = "0123456789abcdef0123456789abcdef"
_TEXT: Final = ((b"content-type", b"text/plain"),)
_AUTHORIZED: Final = ((b"content-type", b"application/json"), (b"authorization", f"Bearer {_TOKEN}".encode()))


@dataclass(frozen=True, slots=True)
class _Request:
    """A request about a name, which takes the place of {} in path and body, and the status of its answer."""

    name: str
    status: int
    path: str
    body: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_cached: bool = False


_REQUESTS: Final = {
    "cold": _Request("10.1000/cold%d", 302, "/{}"),
    "row": _Request("10.1000/row%d", 200, "/api/resolve", "{}", _TEXT),
    "parse": _Request("10.1000/text%d", 200, "/api/parse", "doi:{}", _TEXT),
    "purge": _Request(
        "10.1000/PURGED%d", 200, "/admin/purge", '{{"doi": "{}"}}', _AUTHORIZED, {"admin_token": _TOKEN}, True
    ),
}


class Figures(msgspec.Struct, frozen=True):
    """The size of a journey. See the module."""

    files: int
    classes: int
    crossings: int


class Trace:
    """What ran between `start` and `stop`, in all threads that began after `start`, and in this one."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.classes: dict[tuple[str, str], None] = {}
        self.crossings = 0

    @property
    def figures(self) -> Figures:
        """The size of the journey."""
        return Figures(len(self.files), len(self.classes), self.crossings)

    def start(self) -> None:
        """Record every call of a Python function from now on."""
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    def stop(self) -> None:
        """Record no more."""
        sys.setprofile(None)
        threading.setprofile(None)

    def _record(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(APP):
            return
        name = file.removeprefix(APP)
        self.files[name] = None
        outer, _, inner = frame.f_code.co_qualname.partition(".")
        if inner and not inner.startswith("<locals>"):
            self.classes[(name, outer)] = None
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(APP):
            caller = caller.f_back
        if caller is None or caller.f_code.co_filename != file:
            self.crossings += 1


async def trace(run: Callable[[int], Awaitable[Any]]) -> Trace:
    """The last of several runs, each with its own number."""
    for number in range(WARM_UP):
        await run(number)
    found = Trace()
    found.start()
    try:
        await run(WARM_UP)
    finally:
        found.stop()
    return found


def trace_journeys() -> dict[str, Trace]:
    """Each journey by its name, with the default settings and the store in memory, but for `import`."""
    return {**asyncio.run(_trace_hot()), **asyncio.run(_trace_requests()), "import": _trace_import()}


def trace_alone() -> dict[str, tuple[list[str], Figures]]:
    """The files and the figures of each journey, from a new process: here, caches may have answers that shorten it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_describe_journeys).result()


def _describe_journeys() -> dict[str, tuple[list[str], Figures]]:
    return {name: (list(found.files), found.figures) for name, found in trace_journeys().items()}


async def _trace_hot() -> dict[str, Trace]:
    """A hot redirect by each way."""
    found = {}
    path = path_of(HOT)
    for label, express in (("hot, prepared", True), ("hot, protocol", False)):
        async with in_process(express_lane=express) as one:
            one.keep([HOT], time.time())
            connection = Wire(one.application).connect()
            found[label] = await trace(lambda _, connection=connection: connection.ask(path))  # type: ignore[misc]
    async with in_process(express_lane=False) as one:
        one.keep([HOT], time.time())
        found["hot, ASGI"] = await trace(lambda _: one.ask(path))
    return found


async def _trace_request(request: _Request, upstream: FakeUpstream) -> Trace:
    for number in range(WARM_UP + 1):
        upstream.put(request.name % number, url=f"https://example.org/{number}")
    now = time.time()
    # The time stands still: in another second, the dates of headers would be written anew, and a list that has used up
    # its turn of the event loop, on a busy machine, would be called once more.
    with patch.object(time, "monotonic", lambda: now):
        one = InProcess(upstream_url=upstream.url, clock=lambda: now, **request.settings)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(one.close)
        if request.is_cached:
            one.keep([request.name % number for number in range(WARM_UP + 1)], now)

        async def run(number: int) -> None:
            name = request.name % number
            status = await one.ask(request.path.format(name), request.body.format(name).encode(), request.headers)
            if status != request.status:
                raise RuntimeError(f"{request.path} was answered with {status}, not {request.status}")

        return await trace(run)


async def _trace_requests() -> dict[str, Trace]:
    async with FakeUpstream() as upstream:
        return {label: await _trace_request(request, upstream) for label, request in _REQUESTS.items()}


def _trace_import() -> Trace:
    """`cache import` of a bundle with one record into a SQLite store."""
    values = [{"index": 1, "type": "URL", "data": {"format": "string", "value": "https://example.org/"}, "ttl": 86400}]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        bundle = Path(folder) / "bundle.ndjson"
        bundle.write_text(json.dumps({"handle": "10.1000/1", "responseCode": 1, "values": values}) + "\n")

        found = Trace()
        for number in range(WARM_UP + 1):
            store = f"sqlite:///{folder}/store{number}.db"
            arguments = ["cache", "import", str(bundle), "--no-checksum", "--store-url", store]
            if number == WARM_UP:
                found.start()
            try:
                status = run_command(arguments)
            finally:
                found.stop()
            if status:
                raise RuntimeError(f"the import ended with status {status}")
        return found


def read_table() -> dict[str, Figures]:
    """The figures that were recorded last, by journey."""
    return msgspec.json.decode(TABLE.read_bytes(), type=dict[str, Figures])


def record_table(figures: dict[str, Figures]) -> None:
    """Record figures, a line for each journey."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(msgspec.to_builtins(one))}" for name, one in figures.items())
    TABLE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def find_growth(recorded: dict[str, Figures], measured: dict[str, Figures]) -> list[str]:
    """A sentence for each figure of a journey that is larger than the recorded one."""
    return [
        f"{name}: {field} grew from {before} to {now}"
        for name, figures in measured.items()
        for field in Figures.__struct_fields__
        if (now := getattr(figures, field)) > (before := getattr(recorded[name], field) if name in recorded else 0)
    ]
