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
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from unittest.mock import patch

from uvicorn import Config
from uvicorn.server import ServerState

from doi_proxy.assembly.lifecycle import Lifecycle
from doi_proxy.assembly.settings import Settings
from doi_proxy.main import create
from doi_proxy.server.protocol import ServerProtocol
from doi_proxy.sharing.memory import create_memories
from doi_proxy.web.application import Application
from tests.constants import changed, split
from tests.fake_upstream import FakeUpstream
from tests.features.openapi.described import describe
from tests.world.answer import Reply, check_described, check_reply
from tests.world.client import Asked, Client
from tests.world.loop import WorldLoop
from tests.world.network import Address, Listening
from tests.world.process import File, Machine, Process
from tests.world.valkey import Valkey

Result = TypeVar("Result")
#: Virtual seconds. No request takes longer.
_MAX_WAIT: Final = 60.0
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

    def __init__(self, loop: WorldLoop, settings: Settings, world: World, process: Process) -> None:
        lifecycle = Lifecycle(settings)
        lifecycle.memories = process.machine.memories or lifecycle.memories
        create_application = partial(create, settings, clock=world.now, chance=world.chance.random, lifecycle=lifecycle)
        self.application: Application = process.context.run(create_application)
        self.lifecycle, self.process = lifecycle, process
        self.is_ready = False
        self._loop = loop
        self._to_app: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._from_app: asyncio.Queue[Any] = asyncio.Queue()
        self._config = Config(self.application, log_config=None, lifespan="off", access_log=False, date_header=False)
        self._config.load()
        self._state = ServerState()
        self._server: Listening
        self._task: asyncio.Task[None]

    @property
    def connections(self) -> int:
        """The number of its open connections."""
        return len(self._state.connections)

    async def start(self, address: Address) -> None:
        """Start the application (ASGI, Lifespan Protocol) and listen."""
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}}
        self._task = self._loop.create_task(self.application(scope, self._to_app.get, self._from_app.put))
        await self._to_app.put({"type": "lifespan.startup"})
        assert (await self._from_app.get())["type"] == "lifespan.startup.complete"
        self._server = self._loop.network.listen(self._accept, address)
        self.is_ready = True

    def _accept(self) -> ServerProtocol:
        return ServerProtocol(self._config, self._state, {})

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
        machines: int = 1,
        **settings: Any,
    ) -> None:
        self.loop = WorldLoop(latency)
        self.chance = random.Random(seed)
        self.log: list[str] = []
        self.upstream = upstream()
        #: The server of a store URL that names it.
        self.valkey: Valkey
        self._constants, self._settings = split({**_DEFAULTS, "upstream_machines": machines, **settings})
        #: Each has so many workers as the settings say, the first ones first in `workers`.
        self.machines = [Machine() for _ in range(machines)]
        self.workers: list[Worker] = []
        self._hosts = count(1)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.loop.close)
            # uvicorn's protocol uses the loop of its thread.
            asyncio.set_event_loop(self.loop)
            stack.callback(asyncio.set_event_loop, None)
            stack.enter_context(changed(self._constants))
            stack.enter_context(self._keep_log())
            self.run(self.upstream.__aenter__())
            stack.callback(lambda: self.run(self.upstream.__aexit__(None, None, None)))
            self._folder = Path(stack.enter_context(TemporaryDirectory()))
            stack.enter_context(patch("sqlite3.connect", partial(sqlite3.connect, factory=File)))
            if str(self._settings["store_url"]).startswith("valkey:"):
                self.valkey = Valkey(self.loop.network, self.now)
            stack.callback(self.loop.bury)
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

    @property
    def _workers_of_machine(self) -> int:
        return int(self._settings.get("workers", 1))

    def _start(self) -> None:
        """Start the workers, with nothing that earlier ones shared."""
        if self._workers_of_machine > 1:
            for number, machine in enumerate(self.machines):
                folder = self._folder / f"machine {number}"
                folder.mkdir(exist_ok=True)
                machine.memories = dict(create_memories(folder))
        for number in range(len(self.machines) * self._workers_of_machine):
            self.workers.append(self._create_worker(number))
            self.run(self._begin(number))

    def _create_worker(self, number: int) -> Worker:
        process = Process(self.machines[number // self._workers_of_machine])
        return Worker(self.loop, self.read_settings(), self, process)

    def read_settings(self, **changes: Any) -> Settings:
        """The settings of the service, with changes, as a process reads them."""
        return Settings(**{"upstream_url": self.upstream.url, **self._settings, **changes})

    def _begin(self, number: int) -> asyncio.Task[None]:
        worker = self.workers[number]
        begun: asyncio.Task[None] = self.loop.create_task(
            worker.start(self.address(number)), context=worker.process.context
        )
        return begun

    def _stop(self) -> None:
        while self.workers:
            worker = self.workers.pop()
            self.run(self.loop.create_task(worker.stop(), context=worker.process.context))

    @property
    def store_path(self) -> Path:
        """The file of the SQLite store."""
        return Path(self._settings["store_url"].removeprefix("sqlite:///"))

    def restart(self) -> None:
        """Stop the service, and start it again."""
        self._stop()
        self._start()

    def kill(self, number: int) -> None:
        """Kill a worker between two turns of the loop. Another one begins in its place."""
        self.loop.kill(self.workers[number].process)
        self.workers[number] = self._create_worker(number)
        self._begin(number)

    def crash(self) -> None:
        """Kill all workers, and wait for those that begin in their place."""
        is_in_file = str(self._settings["store_url"]).startswith("sqlite:")
        # Without this connection, the last one would tidy up the file. A process that is killed does not.
        with closing(sqlite3.connect(self.store_path if is_in_file else ":memory:")) as other:
            other.execute("SELECT * FROM sqlite_schema").fetchall()
            for worker in self.workers:
                self.loop.kill(worker.process)
            self.workers.clear()
            self._start()

    def reload(self, **changes: Any) -> None:
        """Let every worker use changed settings, as at SIGHUP."""
        self._settings |= changes
        for worker in self.workers:
            worker.process.context.run(worker.lifecycle.reload, self.read_settings())

    @staticmethod
    def address(worker: int = 0) -> Address:
        """Where a worker listens."""
        return "127.0.0.1", 8000 + worker

    # Time

    def now(self) -> float:
        """The time of the day, in seconds since the epoch: to a process, that of its machine."""
        return self.loop.now()

    def set_clock(self, seconds: float) -> None:
        """Set the clocks of all machines forward, or back. No time passes."""
        self.loop.offset += seconds

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
        """Wait for the answer to a request, for a minute, and check it. Raises ConnectionError and TimeoutError."""
        reply = self.run(asyncio.wait_for(asked.answer, _MAX_WAIT))
        path = asked.target.partition("?")[0].encode()
        check_reply(reply, asked.method, path, is_streamed=reply["transfer-encoding"] is not None)
        check_described(self.run(describe()), reply, asked.method, path, self.read_settings())
        return reply
