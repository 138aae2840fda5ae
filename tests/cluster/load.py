"""A bounded load of registered and unregistered names. Each answer is checked when it arrives."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from tests.cluster.processes import START_DEADLINE, Proxy, until
from tests.cluster.raw_http import Answered, ask

#: Concurrent callers.
CALLERS: Final = 6
#: The load ends after this many requests in any case.
MAX_REQUESTS: Final = 30_000
#: Reasons that a report has of each phase.
_REASONS: Final = 6
#: The pause after a refused connection, in seconds. Without it, refusals would use up the load.
_PAUSE: Final = 0.05


@dataclass
class Verdicts:
    """The number of answers of each kind. The last three are always faults."""

    right: int = 0
    #: By what the answer says: the port, the status and `Proxy-Status`.
    could_not_verify: Counter[str] = field(default_factory=Counter)
    no_answer: Counter[int] = field(default_factory=Counter)  # by port
    false_not_found: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    #: Registered names for which "could not verify" was answered.
    known_unverified: list[str] = field(default_factory=list)

    @property
    def answered(self) -> int:
        """The number of requests that got an answer."""
        lies = len(self.false_not_found) + len(self.wrong) + len(self.other)
        return self.right + self.could_not_verify.total() + lies

    def __str__(self) -> str:
        return (
            f"right {self.right}, could not verify {self.could_not_verify.total()}"
            f" (of registered names {len(self.known_unverified)}), no answer {self.no_answer.total()},"
            f" wrong {len(self.wrong)}, false not found {len(self.false_not_found)}, other {len(self.other)}"
            + "".join(f"\n    {number:>4} {reason}" for reason, number in self.could_not_verify.most_common(_REASONS))
        )


class Load:
    """Sends requests to all proxies in turn until the block ends. `verdicts` counts since the last `phase`."""

    def __init__(self, proxies: list[Proxy], registered: dict[str, str], unknown: list[str]) -> None:
        self._ports = [proxy.port for proxy in proxies]
        self._registered = registered
        self._names = [name for pair in zip(registered, unknown * len(registered), strict=False) for name in pair]
        self._numbers = count()
        self._ended = False
        self._tasks: list[asyncio.Task[None]] = []
        self.verdicts = Verdicts()
        self.phases: dict[str, Verdicts] = {}

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._call()) for _ in range(CALLERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended = True
        await asyncio.gather(*self._tasks)

    def phase(self, name: str) -> Verdicts:
        """Begin a phase with new counts."""
        self.verdicts = self.phases[name] = Verdicts()
        return self.verdicts

    async def answers(self, more: int) -> None:
        """Wait for a number of further answers."""
        verdicts = self.verdicts
        wanted = verdicts.answered + more

        async def enough() -> bool:
            return verdicts.answered >= wanted

        await until(enough, START_DEADLINE, f"{wanted} answers, there are {verdicts}")

    def report(self) -> str:
        """The counts of every phase, a line each."""
        return "\n".join(f"{name:<34} {verdicts}" for name, verdicts in self.phases.items())

    async def _call(self) -> None:
        while not self._ended and (number := next(self._numbers)) < MAX_REQUESTS:
            # The port changes with each round over the names, so every proxy gets a request for every name.
            name = self._names[number % len(self._names)]
            port = self._ports[(number + number // len(self._names)) % len(self._ports)]
            try:
                answer = await ask(port, f"/{name}")
            except (OSError, EOFError, TimeoutError):
                self.verdicts.no_answer[port] += 1
                await asyncio.sleep(_PAUSE)
            else:
                self._judge(self.verdicts, name, port, answer)

    def _judge(self, verdicts: Verdicts, name: str, port: int, answer: Answered) -> None:
        url = self._registered.get(name)
        if answer.status in (502, 503, 504):
            reason = f"{port}: {answer.status} {answer.headers.get('proxy-status')}"
            verdicts.could_not_verify[reason] += 1
            if url is not None:
                verdicts.known_unverified.append(f"{name} at {reason}")
        elif answer.location:
            if answer.status == 302 and answer.location == url:
                verdicts.right += 1
            else:
                verdicts.wrong.append(f"{name} -> {answer.status} {answer.location}")
        elif answer.status == 404:
            if url is None:
                verdicts.right += 1
            else:
                verdicts.false_not_found.append(name)
        else:
            verdicts.other.append(f"{name}: {answer.status}")
