"""The incidents of a service as its log and its status tell them: each begins and ends once, and names its cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.simulation.causes import Causes

Report = Callable[[str, str], None]
#: Seconds that a query may have waited before its failure is logged.
_WAITED: Final = 9.0
#: How the line begins or ends an incident, and the kind of its event.
_LINES: Final = (
    (re.compile(r"is down: .*?\b(?P<token>upstream-[a-z-]+|breaker-open): "), "outage", True),
    (re.compile(r"is up again after .* s$"), "outage", False),
    (re.compile(r"gets no queries for .* s: "), "pause", True),
    (re.compile(r"gets queries again after"), "pause", False),
    (re.compile(r"queries about new names are refused: (?P<token>[a-z-]+): "), "refusal", True),
    (re.compile(r"queries about new names are sent again after"), "refusal", False),
    (re.compile(r"The store is down"), "store", True),
    (re.compile(r"The store is up again"), "store", False),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the log that begins or ends an incident."""

    kind: str
    begins: bool
    text: str
    #: The cause that it names.
    token: str = ""


def read_lines(lines: list[str]) -> Iterator[Line]:
    """The lines that begin or end an incident."""
    for line in lines:
        for pattern, kind, begins in _LINES:
            if found := pattern.search(line):
                token = found.groupdict().get("token")
                yield Line(kind, begins, line, token or "")


class Incidents:
    """What the log of a service has told since its start."""

    def __init__(self, causes: Causes, report: Report, *, instances: int) -> None:
        self._causes, self._report, self._instances = causes, report, instances
        self._lines_read = 0
        self._open: set[str] = set()
        #: The kinds of which an incident began.
        self._seen: set[str] = set()
        #: The kinds of which the first line may begin an incident or end it.
        self._unsure: set[str] = set()

    def start(self, log: list[str], *, is_killed: bool = False) -> None:
        """The service was started anew. It knows nothing of earlier incidents. Its store may fail from the start.

        If one of its instances `is_killed`, incidents end without a line, and others go on.
        """
        self._open.clear()
        self._seen.clear()
        self._unsure = {kind for _, kind, _ in _LINES} if is_killed else {"store"}
        self._lines_read = len(log)

    def read(self, log: list[str], now: float) -> None:
        """Read the lines that are new, right after they were written."""
        if self._lines_read == len(log):
            return
        for line in read_lines(log[self._lines_read :]):
            # The first instance that finds out about a state writes its line; the log of a world has them all.
            if line.begins == (line.kind in self._open):
                if self._instances == 1 and line.kind not in self._unsure:
                    self._report("an incident begins and ends with one line", line.text)
                continue
            self._unsure.discard(line.kind)
            (self._open.add if line.begins else self._open.discard)(line.kind)
            self._seen.add(line.kind)
            if line.token and (objection := self._causes.find_objection(line.token, now - _WAITED)):
                self._report(objection[0], f"the log says {line.text!r}: {objection[1]}")
        self._lines_read = len(log)

    def judge_statuses(self, statuses: Sequence[Any]) -> None:
        """Judge /status of each instance after a time in which everything worked."""
        for kind in self._open:
            self._report("an incident ends when its cause has ended", f"the log has no end of: {kind}")
        told = {event["kind"] for status in statuses for event in status["events"]}
        for kind in self._seen - told:
            self._report(f"an incident of the kind {kind!r} is an event", "the log tells of one, /status does not")
        for status in statuses:
            self._judge_status(status)

    def _judge_status(self, status: Any) -> None:
        for event in status["events"]:
            if event["kind"] in {"outage", "pause", "refusal", "store"} and event["until"] is None:
                self._report("an incident ends when its cause has ended", f"/status has no end of: {event['kind']}")
        state = status["summary"]["state"]
        if state != "working" or not status["store"]["healthy"]:
            self._report("a service works again when its upstream and its store do", f"{state}: {status['store']}")
        left = {name: status["budget"][name] for name in ("in_flight", "waiting", "clients_waiting")}
        if any(left.values()):
            self._report("nothing is left of requests that have ended", str(left))
