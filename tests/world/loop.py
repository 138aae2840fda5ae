"""An event loop in virtual time, with a network in memory: its clock moves only when nothing is runnable.

Minutes pass in milliseconds, and no test has a real deadline. What the program gives to a thread of the pool
runs in the next turn, in the thread of the loop. From the making of a loop to its end, the clocks of the process show
its time, and threads that the program starts take turns with it.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from contextvars import copy_context
from importlib.util import find_spec
from typing import Any, Final, TypeVar
from unittest.mock import patch
from weakref import WeakSet

from tests.world.network import Address, Network
from tests.world.process import PROCESS, Process
from tests.world.threads import Turns

Result = TypeVar("Result")
#: 2023-11-14T22:13:20Z.
BEGINNING: Final = 1_700_000_000.0
#: Threads of the program that wait, or report to the loop: one writes a SQLite store, one looks up a host.
_THREADS: Final = ("doi_proxy.features.sqlite.writer.Thread", "doi_proxy.system.check.Thread")
_CONDITION: Final = "doi_proxy.features.sqlite.writer.Condition"
_SQLITE: Final = "doi_proxy.features.sqlite"
#: Advances of the clock in one run of a loop. A run of the tests needs a thousandth.
_MAX_ADVANCES: Final = 20_000
#: Turns of a loop without an advance of its clock. They take some ten seconds.
_MAX_TURNS: Final = 1_000_000
#: Virtual seconds between two attempts to connect over a link that is cut.
_CUT_INTERVAL: Final = 0.2
#: Virtual seconds in which the tasks of a killed process end.
_LONGEST_END: Final = 60.0


class _NoSelector(selectors.BaseSelector):
    """Advances the clock instead of waiting for a file. Files are never ready: the network is in memory."""

    def __init__(self) -> None:
        self.now = 0.0
        #: In this run of the loop.
        self.advances = 0
        #: Since the last advance.
        self.turns = 0
        #: What is called between two turns, and after how many further turns.
        self.interruptions: list[tuple[int, Callable[[], None]]] = []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.interruptions:
            due = [interrupt for turns, interrupt in self.interruptions if turns <= 0]
            self.interruptions = [(turns - 1, interrupt) for turns, interrupt in self.interruptions if turns > 0]
            for interrupt in due:
                interrupt()
            # An interruption may have made something runnable.
            timeout = 0.0 if due else timeout
        if timeout is None:
            raise RuntimeError("nothing is runnable and no timer is set: the loop would wait for ever")
        self.turns += 1
        if self.turns > _MAX_TURNS:
            raise RuntimeError(f"{_MAX_TURNS} turns took no time: something waits without letting time pass")
        if timeout > 0.0:
            self.now += timeout
            self.turns = 0
            self.advances += 1
            if self.advances > _MAX_ADVANCES:
                raise RuntimeError(f"the clock moved {_MAX_ADVANCES} times: something polls for what does not happen")
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)


class LoopClock:
    """A call returns the time of the day in a loop, in seconds since the epoch."""

    def __init__(self, loop: WorldLoop) -> None:
        self._loop = loop

    def __call__(self) -> float:
        return self._loop.now()

    @property
    def now(self) -> float:
        """The same."""
        return self()

    def advance(self, seconds: float) -> None:
        """Set the clocks of all machines forward. No time passes."""
        self._loop.offset += seconds


class WorldLoop(asyncio.SelectorEventLoop):
    """Its time begins at 0.0. `latency` is that of its network. `offset` sets the clocks of all machines."""

    def __init__(self, latency: Callable[[], float] | None = None) -> None:
        self._virtual = _NoSelector()
        super().__init__(self._virtual)
        self.network = Network(self, latency)
        self.offset = BEGINNING
        self.clock = LoopClock(self)
        self._connecting: dict[socket.socket, Address] = {}
        self._tasks: dict[Process, WeakSet[asyncio.Task[Any]]] = {}
        #: What was about to run in processes that were killed, and their tasks.
        self._stopped: list[tuple[list[Any], list[asyncio.Task[Any]]]] = []
        turns = Turns(self)
        replacements = {
            "time.time": self.now,
            "time.monotonic": self.time,
            "time.perf_counter": self.time,
            **dict.fromkeys(_THREADS, turns.thread),
            _CONDITION: turns.condition,
        }
        self._replaced = ExitStack()
        for name, replacement in replacements.items():
            # The feature may have been removed; see tools/removable.py.
            if not name.startswith(_SQLITE) or find_spec(_SQLITE) is not None:
                self._replaced.enter_context(patch(name, replacement))

    def close(self) -> None:
        """End the loop. The clocks of the process are those of the system again."""
        self._replaced.close()
        super().close()

    def run_forever(self) -> None:
        self._virtual.advances = self._virtual.turns = 0
        super().run_forever()

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self._virtual.now

    def now(self) -> float:
        """The time of the day, in seconds since the epoch: to a process, that of its machine."""
        process = PROCESS.get()
        return self.offset + self.time() + (0.0 if process is None else process.machine.ahead)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Run a function of a thread in the next turn."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_soon(work)
        return future

    def create_task(self, coro: Any, **options: Any) -> Any:
        """Create a task, which belongs to the current process."""
        task = super().create_task(coro, **options)
        process = (options.get("context") or copy_context()).get(PROCESS)
        if process is not None:
            self._tasks.setdefault(process, WeakSet()).add(task)
        return task

    def count_tasks(self, process: Process) -> int:
        """The number of the tasks of a process that have not ended."""
        return sum(not task.done() for task in self._tasks.get(process, ()))

    def stand_still(self, seconds: float) -> None:
        """Let time pass in which nothing runs: all processes are stopped, as by SIGSTOP."""
        self._virtual.now += seconds

    def interrupt(self, turns: int, act: Callable[[], None]) -> None:
        """Act between two turns, after so many further turns."""
        self._virtual.interruptions.append((turns, act))

    def kill(self, process: Process) -> None:
        """Kill a process: nothing in its context runs any more."""
        process.kill()
        ready, timers = list(self._ready), list(self._scheduled)
        self._ready.clear()
        self._ready.extend(handle for handle in ready if not _belongs(handle, process))
        self._scheduled[:] = [timer for timer in timers if not _belongs(timer, process)]
        heapq.heapify(self._scheduled)
        for timer in timers:
            if _belongs(timer, process):
                timer._scheduled = False
                self._timer_cancelled_count -= timer._cancelled
        handles = [handle for handle in ready if _belongs(handle, process)]
        self._stopped.append((handles, [task for task in self._tasks.pop(process, ()) if not task.done()]))

    _ready: Any
    _scheduled: Any
    _timer_cancelled_count: int

    def bury(self) -> None:
        """Let the tasks of killed processes end, after all that counts."""
        for handles, tasks in self._stopped:
            self._ready.extend(handles)
            # What a task awaits after its cancellation may be a thread's, which the kill has ended.
            while waiting := [task for task in tasks if not task.done()]:
                for task in waiting:
                    task.cancel()
                self.run_until_complete(asyncio.wait(waiting, timeout=_LONGEST_END))
        self._stopped.clear()

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Note where a socket would connect. `create_connection` takes it. Raises ConnectionRefusedError."""
        await self._reach(address[:2])
        self.network.require_server(address)
        self._connecting[sock] = address[:2]

    async def _reach(self, address: Any) -> None:
        """Wait while the link to an address is cut: nothing answers."""
        await asyncio.sleep(0)
        while self.network.is_apart(PROCESS.get(), tuple(address)):  # noqa: ASYNC110 - a link has no event
            await asyncio.sleep(_CUT_INTERVAL)

    async def create_connection(
        self,
        protocol_factory: Callable[[], Any],
        host: Any = None,
        port: Any = None,
        *,
        sock: Any = None,
        ssl: Any = None,
        server_hostname: str | None = None,
        **_: Any,
    ) -> tuple[Any, Any]:
        """Connect in the network in memory."""
        protocol, address = protocol_factory(), (host, port)
        if sock is not None:
            address = self._connecting.pop(sock)
            sock.close()
        await self._reach(address)
        if not ssl:
            return self.network.connect(protocol, address), protocol
        wire = self.network.connect(asyncio.Protocol(), address)
        transport: Any = await self.start_tls(wire, protocol, ssl, server_hostname=server_hostname or host)
        protocol.connection_made(transport)
        return transport, protocol

    async def create_server(
        self,
        protocol_factory: Callable[[], Any],
        host: Any = None,
        port: Any = None,
        *,
        sock: Any = None,
        ssl: Any = None,
        **_: Any,
    ) -> Any:
        """Listen in the network in memory, at the address of a socket if there is one."""
        address = (host, port) if sock is None else sock.getsockname()
        if ssl is None:
            return self.network.listen(protocol_factory, address)
        return self.network.listen(
            lambda: SSLProtocol(self, protocol_factory(), ssl, None, server_side=True),  # type: ignore[arg-type]
            address,
        )

    async def create_datagram_endpoint(
        self, protocol_factory: Callable[[], Any], local_addr: Any = None, remote_addr: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        """Open a socket for datagrams in the network in memory."""
        protocol = protocol_factory()
        return self.network.open_datagrams(protocol, local_addr, remote_addr), protocol


def network_of(loop: asyncio.AbstractEventLoop) -> Network:
    """The network in memory of a loop in virtual time."""
    assert isinstance(loop, WorldLoop), "a test in real time has no network in memory"
    return loop.network


def _belongs(handle: Any, process: Process) -> bool:
    return handle._context.get(PROCESS) is process


def run_virtually(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end in a loop of its own."""
    with asyncio.Runner(loop_factory=WorldLoop) as runner:
        return runner.run(work)
