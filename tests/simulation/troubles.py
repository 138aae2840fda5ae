"""What happens in a history to instances, the store and connections, besides what the upstream does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from tests.simulation.bounds import CONNECTIONS
from tests.simulation.history import Setup
from tests.simulation.judge import Judge
from tests.world.calls import SLOW
from tests.world.process import File
from tests.world.world import World

#: Seconds after which a store has what it missed.
WRITTEN_AFTER: Final = 5.0
#: Seconds in which a store that failed once is tried again.
_RETRIED_AFTER: Final = 3.0
#: Seconds within which an answer arrives.
_ON_THE_WAY: Final = 0.5
_DAMAGE: Final = 200
#: Failures of Valkey in which it cannot be read.
_SILENT: Final = frozenset({"stop", "lose", "hang", "slow"})
#: Pages of SQLite, of which there are never so many.
_MANY_PAGES: Final = 1_000_000
#: The networks of a crowd, the connections by which it is more than an instance may have, and the seconds of it.
_CROWD: Final = 8
_CROWD_MORE: Final = 50
_CROWD_SECONDS: Final = 4.0


class Troubles:
    """See the module. `leave` lets the clients of an instance go away."""

    def __init__(self, world: World, judge: Judge, setup: Setup, leave: Callable[[int], None]) -> None:
        self._world, self._judge, self._setup, self._leave = world, judge, setup, leave
        self._folder: Path
        #: Where the folder of the store is, while it cannot be read. No process starts then.
        self._leads_to: Path | None = None

    # Instances

    def kill(self, instance: int, turns: int) -> None:
        """Kill an instance after so many turns of the loop. Another process takes its place."""
        self._world.loop.interrupt(turns, partial(self._kill, instance % self._setup.instances))

    def _kill(self, instance: int) -> None:
        instances = self._world.instances
        if instance < len(instances) and instances[instance].is_ready and self._leads_to is None:
            self._leave(instance)
            self._judge.kill(instance, is_stored=self._setup.is_stored)
            self._world.kill(instance)

    def skew(self, instance: int, ahead: float) -> None:
        """Set the clock of the machine of an instance."""
        changed = self._world.machines[instance % self._setup.instances]
        self._judge.set_clock(min(0.0, ahead - changed.ahead))
        changed.ahead = ahead
        self._judge.skew = max(self._judge.skew, abs(ahead))

    def cut(self, instance: int, seconds: float, *, is_of_store: bool) -> None:
        """Nothing passes between an instance and the upstream, or Valkey. The others reach it."""
        network, machine = self._world.loop.network, self._world.machines[instance % self._setup.instances]
        if is_of_store and self._setup.store == "valkey":
            if self._begin_outage(seconds, self._mend, is_silent=True):
                self._judge.happened["cut from the store"] += 1
                network.cut(machine, self._world.valkey.address)
            return
        host, port = self._world.upstream.url.removeprefix("http://").split(":")
        self._judge.happened["cut"] += 1
        network.cut(machine, (host, int(port)))
        self._judge.cut()
        for later in (0.0, seconds):
            self._world.loop.call_later(later, self._judge.hear_fault, None, "hang", {})
        self._world.loop.call_later(seconds, self._mend)

    def _mend(self) -> None:
        self._world.loop.network.mend()
        self._judge.mend()

    def reload(self, trusted: str) -> None:
        """Change a setting, and reload."""
        self._world.reload(trusted_proxies=trusted)

    # Clients

    def churn(self, count: int, host: str) -> None:
        """A client connects many times, and leaves without a byte."""
        for number in range(count):
            self._come(number % self._setup.instances, host, number, number * 0.01)

    def crowd(self, instance: int) -> None:
        """More clients connect to an instance than it may have connections, and leave without a byte."""
        self._judge.crowd(_CROWD_SECONDS)
        self._judge.happened["crowd"] += 1
        instance %= self._setup.instances
        for number in range(CONNECTIONS + _CROWD_MORE):
            host, leaves_after = f"{20 + number % _CROWD}.0.113.9", 0.5 + number % 6 * 0.5
            arrives = number / CONNECTIONS / 2
            self._world.loop.call_later(arrives, self._come, instance, host, number, leaves_after)

    def _come(self, instance: int, host: str, number: int, leaves_after: float) -> None:
        address = self._world.address(instance)
        if address in self._world.loop.network.servers:
            wire = self._world.loop.network.connect(asyncio.Protocol(), address, host)
            self._world.loop.call_later(leaves_after, wire.abort if number % 2 else wire.close)

    # The file of the store

    def lose(self) -> None:
        """The file of the store is deleted."""
        if self._begin_outage(WRITTEN_AFTER):
            self._judge.lose_store()
            for file in self._world.store_path.parent.glob(f"{self._world.store_path.name}*"):
                file.unlink()

    def unreadable(self, seconds: float) -> None:
        """The folder of the store cannot be read: what is open stays open, and nothing is lost."""
        # What opens a file fails, so the processes do without their store for some seconds.
        if self._begin_outage(seconds, self.make_readable, is_silent=True):
            self._judge.happened["unreadable"] += 1
            self._folder = folder = self._world.store_path.parent
            self._leads_to = folder.readlink()
            folder.unlink()
            # A link to itself: the user root reads every folder.
            folder.symlink_to(folder)

    def make_readable(self) -> None:
        """The folder can be read again."""
        if self._leads_to is not None:
            self._folder.unlink()
            self._folder.symlink_to(self._leads_to)
            self._leads_to = None

    def fill(self, seconds: float) -> None:
        """There is no room for the file of the store to grow."""
        if self._begin_outage(seconds, self._make_room):
            self._limit_pages(1)

    def _make_room(self) -> None:
        self._limit_pages(_MANY_PAGES)

    def _limit_pages(self, most: int) -> None:
        for instance in self._world.instances:
            for file in instance.process.held:
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
            return
        if what == "failover" and self._setup.has_replica:
            self._fail_over(seconds, lag=amount)
            return
        start: dict[str, Callable[[], None]] = {
            "stop": valkey.stop,
            "lose": valkey.stop,
            "hang": valkey.hang,
            "slow": partial(setattr, valkey, "delay", amount),
            "full": partial(setattr, keys, "is_full", True),
            "replica": valkey.fail_over,
            "failover": valkey.fail_over,
        }
        end: dict[str, Callable[[], None]] = {
            "stop": lambda: valkey.start(keys.save()),
            "lose": valkey.start,
            "hang": valkey.resume,
            "slow": partial(setattr, valkey, "delay", 0.0),
            "full": partial(setattr, keys, "is_full", False),
            "replica": partial(setattr, keys, "is_replica", False),
            "failover": partial(setattr, keys, "is_replica", False),
        }
        # Sentinel's clients leave a primary that has become a replica (docs/valkey.md, "Sentinel").
        is_left = what == "replica" and self._setup.has_replica
        if self._begin_outage(seconds, end[what], is_silent=what in _SILENT or is_left):
            if what == "lose":
                self._judge.lose_store()
            start[what]()

    def _fail_over(self, seconds: float, *, lag: float) -> None:
        """The primary ends. The replica takes over, without what was written in the last `lag` seconds."""
        file, primary = self._world.valkey.keys.save(), self._world.valkey
        if self._begin_outage(lag + seconds, partial(self._world.sentinel.promote, file), is_silent=True):
            self._judge.happened["failover"] += 1
            self._world.loop.call_later(lag, primary.stop)
            self._world.loop.call_later(lag, self._judge.lose_store)

    def miss_calls(self) -> None:
        """A call of the store goes wrong: until it is tried again, the store may be thought to be down."""
        self._begin_outage(_RETRIED_AFTER, is_silent=True)
        # A process that stands still hears no answer, or hears it later.
        self._judge.hear_fault(None, "hang", {})
        self._judge.upstream.delay(self._world.loop.time() - _ON_THE_WAY, SLOW)

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
