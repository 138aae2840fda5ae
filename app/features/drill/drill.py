"""A drill: for some seconds, queries to the upstream are refused. The workers of a machine share it in a file."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

from app.features.shared_file import SharedFile
from app.upstream.budget import Budget
from app.upstream.source import Priority

log = logging.getLogger(__name__)


class Drill:
    """Refuses queries until a time in seconds since the epoch: those of people too, or only all others."""

    def __init__(
        self, file: Path | None, clock: Callable[[], float], budget: Budget, announce: Callable[[], None]
    ) -> None:
        """`file` is shared by the workers, None for a process alone. `announce` makes the others read it."""
        self._file = None if file is None else SharedFile(file)
        self._clock = clock
        self._budget = budget
        self._announce = announce
        #: If the clock was set back to a time before the beginning, the drill has ended: it would last for too long.
        self._began = self._until = 0.0
        self._has_people = False

    def begin(self, seconds: float, *, people: bool) -> float:
        """Begin a drill, or with 0 seconds end it. Returns its end. Raises OSError."""
        began = self._clock()
        until = began + seconds
        if self._file is not None:
            self._file.change(lambda _: json.dumps([began, until, people]).encode())
            self._announce()
        self._use(began, until, people)
        return until

    def refresh(self) -> None:
        """Read the file if another worker has changed it. At the end of a drill, nothing is refused any more."""
        if self._file is not None and (content := self._file.read_new()):
            began, until, people = json.loads(content)
            self._use(float(began), float(until), bool(people))
        if self._budget.drill is not None and not self._is_on:
            self._use(0.0, 0.0, people=False)

    @property
    def _is_on(self) -> bool:
        return self._began <= self._clock() < self._until

    def _use(self, began: float, until: float, people: bool) -> None:
        self._began, self._until, self._has_people = began, until, people
        is_on = self._is_on
        if is_on != (self._budget.drill is not None):
            log.warning("a drill refuses queries to the upstream" if is_on else "the drill has ended")
        self._budget.drill = self._count_seconds if is_on else None

    def _count_seconds(self, priority: Priority) -> float:
        is_refused = self._is_on and (self._has_people or priority is not Priority.PERSON)
        return self._until - self._clock() if is_refused else 0.0
