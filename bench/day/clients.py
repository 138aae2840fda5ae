"""The clients of the day: a steady rate of requests, whose every answer is judged."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from bench.connection import Connection
from bench.names import path_of, synthetic, zipf
from bench.verdict import Verdict, judge

CLIENTS: Final = 40
NAMES: Final = 2_000
REST_SHARE: Final = 0.3
#: The share of the requests for names that no client requested before.
NEW_SHARE: Final = 0.02
_QUESTIONS: Final = 200_000
_SEED: Final = 17
#: Answers that the report shows as they came.
_MAX_SHOWN: Final = 20
#: A client that is late by more seconds does not catch up.
_MAX_LATE: Final = 2.0


@dataclass(slots=True)
class Tally:
    """The answers of one stretch of the day."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    #: "Could not verify" for names that were answered before, and requests for them that got no answer.
    known_refused: int = 0
    known_dropped: int = 0
    seconds: list[float] = field(default_factory=list)


@dataclass
class Clients:
    """Sends `rate` requests a second to the ports in turn, from as many addresses as there are clients.

    `stretch` is the name of what happens now; `tallies` has the answers by it.
    """

    rate: float
    ports: Sequence[int]
    stretch: str = "start"
    tallies: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    #: Answers that are faults, as they came.
    faults: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Send requests until the task is cancelled."""
        questions, new, answered = zipf(synthetic(NAMES), _QUESTIONS, seed=_SEED), count(), set[str]()
        async with asyncio.TaskGroup() as tasks:
            for number in range(CLIENTS):
                tasks.create_task(self._ask(number, questions[number::CLIENTS], new, answered))

    async def _ask(self, number: int, names: Sequence[str], new: count[int], answered: set[str]) -> None:
        chance = random.Random(number)
        # The proxy trusts the header, so each client has a budget of its own.
        address = f"X-Forwarded-For: {20 + number}.{number}.7.9"
        connection = Connection(self.ports[number % len(self.ports)], address, "X-Forwarded-Proto: http")
        pause = CLIENTS / self.rate
        due = time.monotonic() + number / self.rate
        for turn in count():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due = max(due + pause, time.monotonic() - _MAX_LATE)
            name = names[turn % len(names)]
            if chance.random() < NEW_SHARE:
                name = f"10.3000/new.{next(new)}"
            path = ("/api/handles" if chance.random() < REST_SHARE else "") + path_of(name)
            await self._judge(connection, name, path, answered)

    async def _judge(self, connection: Connection, name: str, path: str, answered: set[str]) -> None:
        stretch, began = self.stretch, time.monotonic()
        # A server may end a connection that is idle, and a client then repeats its request (RFC 9112, section 9.3.1).
        answer = await connection.ask(path) or await connection.ask(path)
        took = time.monotonic() - began
        verdict = Verdict.DROPPED if answer is None else judge(name, answer)
        tally = self.tallies[stretch]
        tally.verdicts[verdict] += 1
        tally.seconds.append(took)
        if verdict in (Verdict.FRESH, Verdict.ASKED, Verdict.STALE):
            answered.add(name)
        is_known = name in answered
        tally.known_refused += is_known and verdict is Verdict.COULD_NOT_VERIFY
        tally.known_dropped += is_known and verdict is Verdict.DROPPED
        is_fault = verdict is Verdict.WRONG or (is_known and verdict is Verdict.COULD_NOT_VERIFY)
        if is_fault and len(self.faults) < _MAX_SHOWN:
            self.faults.append(f"{stretch}, {time.strftime('%H:%M:%S')}, after {took:.2f} s: {path}: {answer}"[:400])
