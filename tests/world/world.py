"""A whole service in virtual time, as a story: time passes where a test lets it pass.

def test_a_stale_answer_during_an_outage() -> None:
    with World(cache_ttl_ceiling=60) as world:
        world.upstream.put("10.1000/182", url="https://example.org/a")
        world.get("/10.1000/182")
        world.upstream.fault(EVERY_NAME, "reset")
        world.sleep(90)
        assert world.get("/10.1000/182").location == "https://example.org/a"
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.world.answer import Reply
from tests.world.client import Asked, Client
from tests.world.loop import WorldLoop
from tests.world.service import Service

Result = TypeVar("Result")


class World(Service):
    """A service with a loop of its own. See Service."""

    def __init__(self, *, latency: Callable[[], float] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.loop = WorldLoop(latency)
        self._hosts = count(1)

    def __enter__(self) -> Self:
        # uvicorn's protocol uses the loop of its thread.
        asyncio.set_event_loop(self.loop)
        try:
            self.run(self.open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as stack:
            stack.callback(self._end)
            stack.callback(lambda: self.run(self.aclose()))
            stack.callback(self.loop.bury)
            # Those that are left if one of them does not stop.
            stack.callback(self._kill_instances)
            self.run(self.stop())

    def _end(self) -> None:
        asyncio.set_event_loop(None)
        self.loop.close()

    def restart(self) -> None:
        """Stop the service, and start it again."""
        self.run(self.stop())
        self.run(self.start())

    def kill(self, number: int) -> None:
        """Kill an instance between two turns of the loop. Another one begins in its place."""
        self.loop.kill(self.instances[number].process)
        self.instances[number] = self._create_instance(number)
        self._begin(number)

    def crash(self) -> None:
        """Kill all instances, and wait for those that begin in their place."""
        is_in_file = str(self._settings["store_url"]).startswith("sqlite:")
        # Without this connection, the last one would tidy up the file. A process that is killed does not.
        with closing(sqlite3.connect(self.store_path if is_in_file else ":memory:")) as other:
            other.execute("SELECT * FROM sqlite_schema").fetchall()
            self._kill_instances()
            self.run(self.start())

    def _kill_instances(self) -> None:
        for instance in self.instances:
            self.loop.kill(instance.process)
        self.instances.clear()

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

    def get(self, target: str, client: Client | None = None, **headers: str) -> Reply:
        """GET by a client, or by a new one, and wait for the answer; keywords are header fields, "_" for "-"."""
        client = client or self.client(f"192.0.2.{next(self._hosts) % 250}")
        return self.finish(client.ask(target, headers))

    def finish(self, asked: Asked) -> Reply:
        """Let time pass until a request is answered. See Service.answer_to."""
        return self.run(self.answer_to(asked))
