"""The operator of the day: reads the log, the events of /status and the memory of each process."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import psutil

from bench.connection import Connection
from tests.cluster.processes import Proxy

#: Seconds between two looks at the memory.
_LOOK_EVERY: Final = 10.0
#: Seconds within which a busy proxy has to show its status.
_PATIENCE: Final = 5.0
#: The lines that concern an operator: the text.
_LINE: Final = re.compile(r"^\S+ \S+ (?:WARNING|ERROR|CRITICAL) [\w.]+: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log: the number of the proxy, and its text."""

    proxy: int
    text: str


@dataclass(frozen=True, slots=True)
class Event:
    """An event of /status: the number of the proxy, and what it says. `at` is in seconds since the epoch."""

    proxy: int
    kind: str
    cause: str
    sign: str
    at: float
    has_ended: bool

    def __str__(self) -> str:
        words = " ".join(filter(None, (self.kind, self.cause, self.sign)))
        return words if self.has_ended else f"{words} (lasts)"


class Watch:
    """Looks at the proxies of the day."""

    def __init__(self, proxies: Sequence[Proxy]) -> None:
        self._proxies = proxies
        self._read = [0] * len(proxies)
        self._began = time.monotonic()
        #: For each process, the minutes since the start and the bytes that are its alone.
        self.memory: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)

    async def run(self) -> None:
        """Look at the memory until the task is cancelled."""
        while True:
            minutes = (time.monotonic() - self._began) / 60
            for number, proxy in enumerate(self._proxies):
                with suppress(psutil.Error):
                    bytes_alone = psutil.Process(proxy.process.id).memory_full_info().uss
                    self.memory[f"proxy {number}, process {proxy.process.id}"].append((minutes, bytes_alone))
            await asyncio.sleep(_LOOK_EVERY)

    def new_lines(self) -> list[Line]:
        """The lines of warnings and errors since the last call."""
        found = []
        for number, proxy in enumerate(self._proxies):
            text = proxy.process.read_log()
            # A line that is being written is read with the next ones.
            end = text.rfind("\n") + 1
            lines = _LINE.findall(text[self._read[number] : end])
            self._read[number] = end
            found += [Line(number, line) for line in lines]
        return found

    async def events(self, since: float) -> list[Event]:
        """The events that began after `since`, of each proxy that answers."""
        found = []
        for number, status in enumerate(await self._statuses()):
            for event in status.get("events", ()):
                if event["at"] >= int(since) and event["kind"] not in ("start", "reload", "drain"):
                    ended = event["until"] is not None or event["kind"] in ("reload-failed", "clock")
                    found.append(Event(number, event["kind"], event["cause"], event["sign"], event["at"], ended))
        return found

    async def sentences(self) -> list[str]:
        """The first sentence of the status of each proxy that answers."""
        return [status["summary"]["sentence"] for status in await self._statuses() if status]

    async def _statuses(self) -> list[dict[str, Any]]:
        statuses: list[dict[str, Any]] = []
        for proxy in self._proxies:
            connection = Connection(proxy.port)
            answer = await connection.ask("/status?format=json", _PATIENCE)
            connection.close()
            statuses.append(msgspec.json.decode(answer.body) if answer and answer.status == 200 else {})
        return statuses
