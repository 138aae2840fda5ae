"""A whole service in this process and in virtual time: the program, its upstream and its clients.

    def test_a_stale_answer_during_an_outage() -> None:
        with World(cache_ttl_ceiling=60) as world:
            world.upstream.put("10.1000/182", url="https://example.org/a")
            world.get("/10.1000/182")
            world.upstream.fault(EVERY_NAME, "reset")
            world.sleep(90)
            assert world.get("/10.1000/182").location == "https://example.org/a"

Everything is the program's own code but the sockets, which `tests/world/network.py` replaces, and the clocks of the
process: `time.time`, `time.monotonic` and `time.perf_counter` return the time of the world while it exists.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from unittest.mock import patch

from uvicorn import Config
from uvicorn.server import ServerState

from app.assembly.lifecycle import Lifecycle
from app.assembly.settings import Settings
from app.features.shared_memory import SharedMemory, Use, create_memories
from app.main import create
from app.server.protocol import ExpressProtocol
from app.web.application import Application
from tests.constants import changed, split
from tests.fake_upstream import FakeUpstream
from tests.world.client import Asked, Client, Reply
from tests.world.loop import WorldLoop
from tests.world.network import Address, Listening
from tests.world.threads import Turns

Result = TypeVar("Result")
#: The thread of a SQLite store that writes.
_THREAD: Final = "app.features.sqlite.writer.Thread"
_CONDITION: Final = "app.features.sqlite.writer.Condition"
#: Virtual seconds. No request takes longer.
_MAX_WAIT: Final = 60.0
#: 2023-11-14T22:13:20Z.
BEGINNING: Final = 1_700_000_000.0
_DEFAULTS: Final[dict[str, Any]] = {
    "store_url": "memory:",
    "upstream_contact": "mailto:library@example.org",
    "access_log": "off",
}


class _Log(logging.Handler):
    """Keeps the lines of the program's log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")


class Worker:
    """One process of the service: an application behind the server's protocol, at an address."""

    def __init__(
        self,
        loop: WorldLoop,
        settings: Settings,
        clock: Callable[[], float],
        chance: random.Random,
        memories: Mapping[Use, SharedMemory],
    ) -> None:
        lifecycle = Lifecycle(settings)
        lifecycle.memories = memories
        self.application: Application = create(settings, clock=clock, chance=chance.random, lifecycle=lifecycle)
        self._loop = loop
        self._to_app: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._from_app: asyncio.Queue[Any] = asyncio.Queue()
        self._config = Config(self.application, log_config=None, lifespan="off", access_log=False, date_header=False)
        self._config.load()
        self._state = ServerState()
        self._server: Listening
        self._task: asyncio.Task[None]

    async def start(self, address: Address) -> None:
        """Start the application (ASGI, Lifespan Protocol) and listen."""
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
        self._task = self._loop.create_task(self.application(scope, self._to_app.get, self._from_app.put))
        await self._to_app.put({"type": "lifespan.startup"})
        assert (await self._from_app.get())["type"] == "lifespan.startup.complete"
        self._server = self._loop.network.listen(self._accept, address)

    def _accept(self) -> ExpressProtocol:
        return ExpressProtocol(self._config, self._state, {})

    async def stop(self) -> None:
        """Close the port and the connections, and stop the application."""
        self._server.close()
        for connection in list(self._state.connections):
            connection.transport.close()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        await self._to_app.put({"type": "lifespan.shutdown"})
        await self._task


class World:
    """See the module. `seed` decides about every chance in it; keywords are settings and constants."""

    def __init__(
        self,
        *,
        seed: int = 1,
        latency: Callable[[], float] | None = None,
        upstream: Callable[[], FakeUpstream] = FakeUpstream,
        **settings: Any,
    ) -> None:
        self.loop = WorldLoop(latency)
        self.chance = random.Random(seed)
        self.log: list[str] = []
        self.upstream = upstream()
        self._constants, self._settings = split({**_DEFAULTS, **settings})
        self._offset = BEGINNING
        self._memories: Mapping[Use, SharedMemory] = {}
        self.workers: list[Worker] = []
        self._hosts = count(1)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.loop.close)
            # uvicorn's protocol uses the loop of its thread.
            asyncio.set_event_loop(self.loop)
            stack.callback(asyncio.set_event_loop, None)
            for name in ("time", "monotonic", "perf_counter"):
                stack.enter_context(patch(f"time.{name}", self.now if name == "time" else self.loop.time))
            stack.enter_context(changed(self._constants))
            turns = Turns(self.loop)
            stack.enter_context(changed({_THREAD: turns.thread, _CONDITION: turns.condition}))
            stack.enter_context(self._keep_log())
            self.run(self.upstream.__aenter__())
            stack.callback(lambda: self.run(self.upstream.__aexit__(None, None, None)))
            self._folder = Path(stack.enter_context(TemporaryDirectory()))
            if self._settings.get("workers", 1) > 1:
                self._memories = create_memories(self._folder)
            stack.callback(self._stop)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @contextmanager
    def _keep_log(self) -> Iterator[None]:
        handler, root = _Log(), logging.getLogger()
        self.log = handler.lines
        root.addHandler(handler)
        try:
            yield
        finally:
            root.removeHandler(handler)

    def _start(self) -> None:
        """Start the workers."""
        for number in range(self._settings.get("workers", 1)):
            settings = Settings(**{"upstream_url": self.upstream.url, **self._settings})
            worker = Worker(self.loop, settings, self.now, self.chance, self._memories)
            self.workers.append(worker)
            self.run(worker.start(self.address(number)))

    def _stop(self) -> None:
        while self.workers:
            self.run(self.workers.pop().stop())

    @property
    def store_path(self) -> Path:
        """The file of the SQLite store."""
        return Path(self._settings["store_url"].removeprefix("sqlite:///"))

    def restart(self) -> None:
        """Stop the service, and start it again."""
        self._stop()
        self._start()

    def crash(self) -> None:
        """Kill the service, and start it again with what the file of its store has at this moment."""
        path = self.store_path
        left = Path(mkdtemp(dir=self._folder))
        for file in path.parent.glob(f"{path.name}*"):
            shutil.copy(file, left)
        self._stop()
        self._settings["store_url"] = f"sqlite:///{left / path.name}"
        self._start()

    @staticmethod
    def address(worker: int = 0) -> Address:
        """Where a worker listens."""
        return "127.0.0.1", 8000 + worker

    # Time

    def now(self) -> float:
        """The time of the day, in seconds since the epoch."""
        return self._offset + self.loop.time()

    def set_clock(self, seconds: float) -> None:
        """Set the clock of the machine forward, or back. No time passes."""
        self._offset += seconds

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.run(asyncio.sleep(seconds))

    def run(self, work: Awaitable[Result]) -> Result:
        """Let time pass until this is done."""
        return self.loop.run_until_complete(work)

    # Clients

    def client(self, address: str = "192.0.2.7", worker: int = 0) -> Client:
        """A client at an address, which connects to a worker."""
        return Client(self.loop.network, self.address(worker), address)

    def get(self, target: str, client: Client | None = None, **headers: str) -> Reply:
        """GET by a client, or by a new one, and wait for the answer; keywords are header fields, "_" for "-"."""
        client = client or self.client(f"192.0.2.{next(self._hosts) % 250}")
        return self.finish(client.ask(target, headers))

    def finish(self, asked: Asked) -> Reply:
        """Wait for the answer to a request, for a minute. Raises ConnectionError and TimeoutError."""
        return self.run(asyncio.wait_for(asked.answer, _MAX_WAIT))
