"""A bounded load of names that are registered and names that are not, each answer judged when it comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from tests.cluster.processes import Proxy, until
from tests.cluster.raw_http import Answered, ask

#: Callers at the same time.
CALLERS: Final = 6
#: Requests after which the load ends whatever happens.
MOST_REQUESTS: Final = 30_000
#: Seconds until a number of further answers has to be there.
_PATIENCE: Final = 30.0
#: After a refused connection, in seconds; a caller that is refused at once must not use up the load.
_PAUSE: Final = 0.05


@dataclass
class Verdicts:
    """How many answers of each kind; the last three are never right."""

    right: int = 0
    could_not_verify: int = 0
    no_answer: Counter[int] = field(default_factory=Counter)  # by port
    false_not_found: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    #: Registered names for which "could not verify" was answered.
    known_unverified: list[str] = field(default_factory=list)

    @property
    def answered(self) -> int:
        """Requests that were answered at all."""
        lies = len(self.false_not_found) + len(self.wrong) + len(self.other)
        return self.right + self.could_not_verify + lies

    def __str__(self) -> str:
        return (
            f"right {self.right}, could not verify {self.could_not_verify}"
            f" (of registered names {len(self.known_unverified)}), no answer {self.no_answer.total()},"
            f" wrong {len(self.wrong)}, false not found {len(self.false_not_found)}, other {len(self.other)}"
        )


class Load:
    """Asks all proxies in turn, until the block ends; `verdicts` counts since the last `phase`."""

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
        """Count from here on under a name."""
        self.verdicts = self.phases[name] = Verdicts()
        return self.verdicts

    async def answers(self, more: int) -> None:
        """Wait until so many further requests were answered."""
        verdicts = self.verdicts
        wanted = verdicts.answered + more

        async def enough() -> bool:
            return verdicts.answered >= wanted

        await until(enough, _PATIENCE, f"{wanted} answers, there are {verdicts}")

    def report(self) -> str:
        """The counts of every phase, a line each."""
        return "\n".join(f"{name:<34} {verdicts}" for name, verdicts in self.phases.items())

    async def _call(self) -> None:
        while not self._ended and (number := next(self._numbers)) < MOST_REQUESTS:
            # The port moves on with each round over the names, so that every proxy is asked for every name.
            name = self._names[number % len(self._names)]
            port = self._ports[(number + number // len(self._names)) % len(self._ports)]
            try:
                answer = await ask(port, f"/{name}")
            except (OSError, EOFError, TimeoutError):
                self.verdicts.no_answer[port] += 1
                await asyncio.sleep(_PAUSE)
            else:
                self._judge(self.verdicts, name, answer)

    def _judge(self, verdicts: Verdicts, name: str, answer: Answered) -> None:
        url = self._registered.get(name)
        if answer.status in (502, 503, 504):
            verdicts.could_not_verify += 1
            if url is not None:
                verdicts.known_unverified.append(f"{name}: {answer.status} {answer.headers.get('proxy-status')}")
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
