"""The times in which a part of the service did not work, with their causes: what an operator reads as events."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Final, Literal

#: Incidents that ended and were not read yet. Beyond that, the oldest is dropped.
MAX_UNREAD: Final = 20
#: An upstream does not answer; it requested a pause; queries about new names are not admitted; or the store fails.
IncidentKind = Literal["outage", "pause", "refusal", "store"]


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something does not work.

    `token` is that of an error, and `sign` narrows it down; see CouldNotVerify.
    """

    token: str = ""
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident. Times are those of the clock of its part, in seconds."""

    kind: IncidentKind
    cause: Cause
    began: float
    #: None while it goes on.
    ended: float | None = None


class Incidents:
    """The incidents of one kind and one part, at most one at a time."""

    def __init__(self, kind: IncidentKind) -> None:
        self._kind: IncidentKind = kind
        #: The incident that goes on.
        self.under_way: Incident | None = None
        self._ended: deque[Incident] = deque(maxlen=MAX_UNREAD)

    def begin(self, at: float, cause: Cause) -> None:
        """Begin an incident, and end the one that goes on."""
        self.end(at)
        self.under_way = Incident(self._kind, cause, at)

    def end(self, at: float) -> None:
        """End the incident that goes on, if there is one."""
        if self.under_way is not None:
            self._ended.append(replace(self.under_way, ended=at))
            self.under_way = None

    def read(self) -> list[Incident]:
        """The incidents that have ended since the last call, and the one that goes on."""
        found = [*self._ended, *([self.under_way] if self.under_way is not None else [])]
        self._ended.clear()
        return found
