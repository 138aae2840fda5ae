"""Measures turns of the event loop in processor time: of a proxy that runs, and of a coroutine.

Processor time, because other programs run on the machine.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster.processes import START_DEADLINE, Process, until
from tests.cluster.raw_http import Answered, ask

#: The most processor time that one turn of the event loop may take, in milliseconds: all other requests wait for it.
MAX_TURN_MS: Final = 20.0
#: The least processor time of `_work` on the machines for which the bound was set, in milliseconds.
_REFERENCE_MS: Final = 12.0
#: Measurements of one unit of work, of which the least counts: another program can empty the processor's caches.
REPEATS: Final = 5
#: Runs a checkout's program on asyncio's own loop, and logs the processor time of each of its turns, in milliseconds.
TIMED: Final = """
import asyncio, runpy, sys, time, uvloop
uvloop.EventLoopPolicy, uvloop.new_event_loop = asyncio.DefaultEventLoopPolicy, asyncio.new_event_loop
uvloop.Loop = asyncio.SelectorEventLoop
turns = open(sys.argv.pop(1), "a", buffering=1)
run = asyncio.Handle._run
def run_timed(handle):
    began = time.thread_time()
    run(handle)
    spent = (time.thread_time() - began) * 1000
    if spent > 1:
        turns.write(f"{spent:.1f}\\n")
asyncio.Handle._run = run_timed
runpy.run_module("doi_proxy", run_name="__main__", alter_sys=True)
"""


def is_short(milliseconds: float, bound: float = MAX_TURN_MS) -> bool:
    """Whether a turn keeps the bound. On a slower machine, the bound is longer by as much as a fixed loop takes."""
    return milliseconds <= bound or milliseconds <= bound * slowness()


def slowness() -> float:
    """How much longer a fixed loop takes now than on the machines for which bounds of time were set. At least 1."""
    return max(1.0, min(_work() for _ in range(REPEATS)) / _REFERENCE_MS)


def _work() -> float:
    began = time.thread_time()
    sum(range(1_000_000))
    return (time.thread_time() - began) * 1000


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that is as large as the limits permit. `largest` says what is large, in words."""

    endpoint: str
    largest: str
    target: str
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class TimedProxy:
    """A running program whose turns are timed. `words` are its arguments, without its port."""

    def __init__(self, folder: Path, words: list[str], settings: dict[str, object]) -> None:
        self._turns = folder / "turns"
        self._turns.touch()
        given = {f"DOI_PROXY_{name.upper()}": str(value) for name, value in settings.items()}
        start = [sys.executable, "-c", TIMED, str(self._turns), *words, "--port", "0"]
        self.process = Process(start, folder / "timed.log", given)
        self.port = self.process.read_port()

    async def wait_for(self, target: str) -> None:
        """Wait until it answers a request for `target`."""

        async def answers() -> bool:
            assert self.process.runs, self.process.log
            try:
                return (await ask(self.port, target, deadline=5.0)).status > 0
            except (OSError, EOFError, TimeoutError):
                return False

        await until(answers, START_DEADLINE, self.process.log)
        self._barrier = target

    async def measure(self, exchange: Exchange) -> tuple[float, Answered]:
        """The longest turn of a request in milliseconds, and its answer."""
        before = self._turns.stat().st_size
        answered = await ask(
            self.port,
            exchange.target,
            method=exchange.method,
            headers=exchange.headers,
            body=exchange.body,
            deadline=START_DEADLINE,
        )
        # A later turn answers this request, so all earlier turns are logged by then.
        await ask(self.port, self._barrier)
        turns = self._turns.read_text()[before:].split()
        return max(map(float, turns), default=0.0), answered
