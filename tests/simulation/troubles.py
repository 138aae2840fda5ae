"""What happens in a history to workers, machines, the store and connections, besides what the upstream does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from tests.simulation.history import Setup
from tests.simulation.judge import Judge
from tests.world.process import File
from tests.world.world import World

#: Seconds after which a store has what it missed.
WRITTEN_AFTER: Final = 5.0
_DAMAGE: Final = 200
#: Failures of Valkey in which it cannot be read.
_SILENT: Final = frozenset({"stop", "lose", "hang", "slow"})
#: Pages of SQLite, of which there are never so many.
_MANY_PAGES: Final = 1_000_000


class Troubles:
    """See the module. `leave` lets the clients of a worker go away."""

    def __init__(self, world: World, judge: Judge, setup: Setup, leave: Callable[[int], None]) -> None:
        self._world, self._judge, self._setup, self._leave = world, judge, setup, leave

    # Workers and machines

    def kill(self, worker: int, turns: int) -> None:
        """Kill a worker after so many turns of the loop."""
        self._world.loop.interrupt(turns, partial(self._kill, worker % self._setup.processes))

    def _kill(self, worker: int) -> None:
        workers = self._world.workers
        if worker < len(workers) and workers[worker].is_ready:
            self._leave(worker)
            self._judge.end_worker(worker, is_stored=self._setup.is_stored)
            self._world.kill(worker)

    def skew(self, machine: int, ahead: float) -> None:
        """Set the clock of one machine."""
        changed = self._world.machines[machine % self._setup.machines]
        self._judge.set_clock(max(0.0, ahead - changed.ahead))
        changed.ahead = ahead

    def reload(self, trusted: str) -> None:
        """Change a setting, and reload."""
        self._world.reload(trusted_proxies=trusted)

    # Clients

    def churn(self, count: int, host: str) -> None:
        """A client connects many times, and leaves without a byte."""
        for number in range(count):
            address = self._world.address(number % self._setup.processes)
            if address in self._world.loop.network.servers:
                wire = self._world.loop.network.connect(asyncio.Protocol(), address, host)
                self._world.loop.call_later(number * 0.01, wire.abort if number % 2 else wire.close)

    # The file of the store

    def lose(self) -> None:
        """The file of the store is deleted."""
        if self._begin_outage(WRITTEN_AFTER):
            self._judge.lose_store()
            for file in self._world.store_path.parent.glob(f"{self._world.store_path.name}*"):
                if "coordination" not in file.name:
                    file.unlink()

    def fill(self, seconds: float) -> None:
        """There is no room for the file of the store to grow."""
        if self._begin_outage(seconds, self._make_room):
            self._limit_pages(1)

    def _make_room(self) -> None:
        self._limit_pages(_MANY_PAGES)

    def _limit_pages(self, most: int) -> None:
        for worker in self._world.workers:
            for file in worker.process.held:
                if isinstance(file, File):
                    file.execute(f"PRAGMA max_page_count = {most}")

    def damage(self, byte: int) -> None:
        """Some bytes of the file of the store are others."""
        if self._begin_outage(WRITTEN_AFTER):
            self._judge.lose_store()
            with self._world.store_path.open("r+b") as file:
                size = file.seek(0, 2)
                file.seek(byte % max(1, size))
                file.write(random.Random(byte).randbytes(_DAMAGE))

    # Valkey

    def valkey(self, what: str, seconds: float, amount: float) -> None:
        """The server of the store fails, or its clock is set."""
        valkey, keys = self._world.valkey, self._world.valkey.keys
        if what == "clock":
            valkey.ahead += amount
            self._judge.set_server_clock(amount)
            return
        start: dict[str, Callable[[], None]] = {
            "stop": valkey.stop,
            "lose": valkey.stop,
            "hang": valkey.hang,
            "slow": partial(setattr, valkey, "delay", amount),
            "full": partial(setattr, keys, "is_full", True),
            "replica": valkey.fail_over,
        }
        end: dict[str, Callable[[], None]] = {
            "stop": lambda: valkey.start(keys.save()),
            "lose": valkey.start,
            "hang": valkey.resume,
            "slow": partial(setattr, valkey, "delay", 0.0),
            "full": partial(setattr, keys, "is_full", False),
            "replica": partial(setattr, keys, "is_replica", False),
        }
        if self._begin_outage(seconds, end[what], is_silent=what in _SILENT):
            if what == "lose":
                self._judge.lose_store()
            start[what]()

    def _begin_outage(self, seconds: float, end: Callable[[], None] = lambda: None, *, is_silent: bool = False) -> bool:
        """Note that the store fails for so many seconds. Returns False if it already does."""
        if self._judge.unwritten_since < inf:
            return False
        self._judge.begin_outage(is_silent=is_silent)
        self._world.loop.call_later(seconds, self._end_outage, end)
        return True

    def _end_outage(self, end: Callable[[], None]) -> None:
        end()
        self._world.loop.call_later(WRITTEN_AFTER, self._judge.end_outage)
