"""A whole service in this process: the program, its server, its upstream and its clients.

Everything is the program's own code but the sockets, which `tests/world/network.py` replaces, and the clocks of the
process, which show the time of the loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from fastapi.dependencies import models

from doi_proxy.assembly.lifecycle import Lifecycle
from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.serve import server_options
from doi_proxy.main import create
from doi_proxy.server.http_server import Events, FurtherListener, HttpServer
from doi_proxy.server.listening import listen, listen_at
from doi_proxy.server.tls import Certificate
from doi_proxy.web.application import Application
from tests.clock import Clock
from tests.constants import changed, split
from tests.fake_upstream import FakeUpstream
from tests.features.openapi.described import describe
from tests.world.answer import Reply, check_described, check_reply
from tests.world.calls import CountedFile
from tests.world.client import Asked, Client
from tests.world.loop import WorldLoop, network_of
from tests.world.network import Address
from tests.world.process import Machine, Process, hold
from tests.world.valkey import Valkey
from tests.world.valkey_sentinel import SENTINEL_URL, Sentinel

#: Virtual seconds. No request takes longer.
_MAX_WAIT: Final = 3_600.0
_DEFAULTS: Final[dict[str, Any]] = {
    "store_url": "memory:",
    "upstream_contact": "mailto:library@example.org",
    "access_log": "off",
    # A page would query the agency of its name too.
    "metadata": False,
}
#: The address of a client that does not choose one.
CLIENT: Final = "192.0.2.7"
_HOST: Final = "127.0.0.1"
_HTTP: Final = "http"


class _Log(logging.Handler):
    """Keeps the lines of the program's log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}")


class _Port:
    """A handle of a bound socket. It ends with its process."""

    def __init__(self, bound: socket.socket) -> None:
        self.socket = bound.dup()
        hold(self)

    def kill(self) -> None:
        self.socket.close()


class Instance:
    """One process of the service: an application behind the program's server."""

    def __init__(
        self, settings: Settings, process: Process, clock: Callable[[], float], chance: Callable[[], float]
    ) -> None:
        lifecycle = Lifecycle(settings)
        create_application = partial(create, settings, clock=clock, chance=chance, lifecycle=lifecycle)
        self.application: Application = process.context.run(create_application)
        self.lifecycle, self.process = lifecycle, process
        self.is_ready = False
        #: Its start, which may be under way.
        self.start_up: asyncio.Task[None]
        self.server: HttpServer
        self._sockets: list[socket.socket]

    @property
    def connections(self) -> int:
        """The number of its open connections."""
        return len(self.server.server_state.connections)

    async def start(self, bound: Mapping[str, socket.socket]) -> None:
        """Start the application, and listen on these sockets."""
        ports = {name: _Port(listening).socket for name, listening in bound.items()}
        self._sockets = list(ports.values())
        further = [FurtherListener(served, ports[name]) for name, served in self.application.listeners.items()]
        events = Events(ready=lambda: None, draining=lambda: None)
        options = server_options(self.lifecycle.settings, Certificate(None, None))
        self.server = server = HttpServer(self.application, options, events, further)
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(self._sockets[:1])
        self.is_ready = True

    async def stop(self) -> None:
        """Close the ports and the connections that have their answer, and stop the application."""
        await self.start_up
        self.is_ready = False
        for listening in self.server.servers:
            listening.close()
        state = self.server.server_state
        for connection in list(state.connections):
            connection.shutdown()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        await self.server.lifespan.shutdown()
        for place in self._sockets:
            place.close()

    async def drain(self) -> None:
        """Close the ports, answer what has arrived, and stop the application, as at SIGTERM."""
        await self.server.shutdown(self._sockets[:1])


class Service:
    """See the module. It starts in the loop that runs. Keywords are settings and constants.

    `chance` is the seed of every chance in it.
    """

    def __init__(
        self,
        *,
        chance: int = 1,
        upstream: Callable[[], FakeUpstream] = FakeUpstream,
        instances: int = 1,
        clock: Any = None,
        **settings: Any,
    ) -> None:
        self.chance = random.Random(chance)
        self.log: list[str] = []
        self.upstream = upstream()
        #: The servers of a store URL that names them.
        self._valkey: Valkey
        self.sentinel: Sentinel
        self._constants, self._settings = split({**_DEFAULTS, "instances": instances, **settings})
        #: Each has one of the instances.
        self.machines = [Machine() for _ in range(instances)]
        self.instances: list[Instance] = []
        self.clock = clock
        #: The sockets of each instance, by listener. Whatever becomes of the instance, they stay bound.
        self._bound: dict[int, dict[str, socket.socket]] = {}
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        """Start the upstream and the instances."""
        loop = asyncio.get_running_loop()
        self.clock = self.clock or (loop.clock if isinstance(loop, WorldLoop) else Clock())
        async with AsyncExitStack() as stack:
            stack.enter_context(changed(self._constants))
            stack.enter_context(self._keep_log())
            await stack.enter_async_context(self.upstream)
            stack.enter_context(patch("sqlite3.connect", partial(sqlite3.connect, factory=CountedFile)))
            if str(self._settings["store_url"]).startswith("valkey:"):
                self._valkey = Valkey(network_of(loop), self.clock)
            elif self._settings["store_url"] == SENTINEL_URL:
                self.sentinel = Sentinel(network_of(loop), self.clock)
            stack.callback(self._unbind)
            stack.push_async_callback(self.stop)
            await self.start()
            self._stack = stack.pop_all()

    async def aclose(self) -> None:
        """Stop the instances and the upstream. In virtual time, the clock shows a whole second then, as answers do."""
        await self._stack.aclose()
        _forget_applications()
        loop = asyncio.get_running_loop()
        if isinstance(loop, WorldLoop):
            await asyncio.sleep(-loop.time() % 1)

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
    def app(self) -> Application:
        """The application of the first instance."""
        return self.instances[0].application

    @property
    def settings(self) -> Settings:
        """The settings in force in the first instance."""
        return self.instances[0].lifecycle.settings

    @property
    def valkey(self) -> Valkey:
        """The server of the store, or the primary."""
        return self.sentinel.primary if self._settings["store_url"] == SENTINEL_URL else self._valkey

    @property
    def store_path(self) -> Path:
        """The file of the SQLite store."""
        return Path(self._settings["store_url"].removeprefix("sqlite:///"))

    def read_settings(self, **changes: Any) -> Settings:
        """The settings of the service, with changes, as a process reads them."""
        # A feature may have been removed with its settings; see tools/removable.py.
        given = {"upstream_url": self.upstream.url, **self._settings, **changes}
        return Settings(**given)

    async def start(self) -> None:
        """Start the instances."""
        for number in range(len(self.machines)):
            self.instances.append(self._create_instance(number))
            await self._begin(number)

    def _create_instance(self, number: int) -> Instance:
        process = Process(self.machines[number])
        return Instance(self.read_settings(), process, self.clock, self.chance.random)

    def _begin(self, number: int) -> asyncio.Task[None]:
        instance = self.instances[number]
        work = instance.start(self._bind(number, instance.application.listeners))
        instance.start_up = asyncio.get_event_loop().create_task(work, context=instance.process.context)
        return instance.start_up

    def _bind(self, number: int, listeners: Any) -> Mapping[str, socket.socket]:
        """The sockets of an instance: that of HTTP, and those of further listeners by their setting."""
        if number not in self._bound:
            settings = self.read_settings()
            further = {name: listen_at(settings.value(name)) for name in listeners}
            self._bound[number] = {_HTTP: listen(_HOST, 0), **further}
        return self._bound[number]

    def _unbind(self) -> None:
        for sockets in self._bound.values():
            for bound in sockets.values():
                bound.close()

    async def stop(self) -> None:
        """Stop the instances. One that does not stop is left, and so are those that come after it."""
        while self.instances:
            instance = self.instances.pop()
            try:
                await asyncio.get_running_loop().create_task(instance.stop(), context=instance.process.context)
            except BaseException:
                self.instances.append(instance)
                raise

    def reload(self, **changes: Any) -> None:
        """Let every instance use changed settings, as at SIGHUP."""
        self._settings |= changes
        for instance in self.instances:
            instance.process.context.run(instance.lifecycle.reload, self.read_settings())

    # Clients

    def address(self, instance: int = 0, listener: str = _HTTP) -> Address:
        """Where an instance listens."""
        address: Address = self._bound[instance][listener].getsockname()
        return address

    def client(self, address: str | None = CLIENT, instance: int = 0) -> Client:
        """A client at an address, which connects to an instance."""
        return Client(asyncio.get_event_loop(), self.address(instance), address)

    async def answer_to(self, asked: Asked) -> Reply:
        """Wait for the answer to a request, and check it. Raises ConnectionError and TimeoutError."""
        reply = await asyncio.wait_for(asked.answer, _MAX_WAIT)
        path = asked.raw.partition(b"?")[0]
        check_reply(reply, asked.method, path, is_streamed=reply["transfer-encoding"] is not None)
        check_described(await describe(), reply, asked.method, path, self.settings)
        return reply


def _forget_applications() -> None:
    """Let the applications that have ended be freed. FastAPI remembers functions of 4,096 routes: 1 MB of each."""
    for remembered in vars(models).values():
        if hasattr(remembered, "cache_clear"):
            remembered.cache_clear()
