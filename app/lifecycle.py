"""What changes in one process while it runs: the settings that are reloaded, and whether it is draining."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from app.errors import ConfigurationError
from app.settings import Settings, reloadable

log = logging.getLogger(__name__)

#: Seconds after which a task that is still running is cancelled once more, and how often.
_CANCEL_EVERY: Final = 0.1
_MOST_CANCELS: Final = 50

#: Puts the settings of one part into force. Raises ConfigurationError, and then has changed nothing.
Apply = Callable[[Settings], None]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part that can be reloaded, with the names of the settings that it reads."""

    apply: Apply
    names: frozenset[str]


class Lifecycle:
    """The settings in force, the parts that follow a reload, and whether the process is draining."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        #: Whether `/readyz` answers 503, because the process is about to end.
        self.draining = False
        self._parts: list[_Part] = []

    def on_reload(self, apply: Apply, *names: str) -> None:
        """Call `apply` at each reload: the files that a setting names may change while the setting does not."""
        self._parts.append(_Part(apply, frozenset(names)))

    @property
    def reloaded(self) -> frozenset[str]:
        """The names of the settings that some part reloads."""
        return frozenset().union(*(part.names for part in self._parts))

    def start_draining(self) -> None:
        """From now on requests should go elsewhere."""
        self.draining = True

    def reload(self, fresh: Settings) -> None:
        """Put the reloadable settings into force. A part that cannot use them logs why and keeps its own."""
        before, kept = self.settings, set[str]()
        after = merge(before, fresh)
        for part in self._parts:
            try:
                part.apply(after)
            except ConfigurationError as error:
                log.error("not reloaded, the former settings stay in force: %s", error.message)
                kept |= part.names
        self.settings = after.model_copy(update={name: getattr(before, name) for name in kept})


async def end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended.

    One cancellation is not enough for a task that uses the store for ever: in Python 3.11 `asyncio.wait_for`, which
    redis-py sends by, loses a cancellation that arrives together with its result (python/cpython#86296).
    """
    pending = set(tasks)
    for _ in range(_MOST_CANCELS):
        if not pending:
            return
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_EVERY)


def merge(in_force: Settings, fresh: Settings) -> Settings:
    """The settings in force with the reloadable ones from `fresh`."""
    return in_force.model_copy(update={name: getattr(fresh, name) for name in reloadable()})


def reread(in_force: Settings, load: Callable[[], Settings]) -> Settings:
    """Read the settings again and log what differs. Returns those in force if the new ones cannot be used."""
    try:
        fresh = load()
    except ConfigurationError as error:
        log.error("SIGHUP: not reloaded, the former settings stay in force: %s", error.message)
        return in_force
    changed = {name for name in Settings.model_fields if getattr(fresh, name) != getattr(in_force, name)}
    log.info("SIGHUP: reloading; settings that changed: %s", _listed(changed & reloadable()))
    if waiting := changed - reloadable():
        log.warning("SIGHUP: these settings changed and need a restart: %s", _listed(waiting))
    return fresh


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
