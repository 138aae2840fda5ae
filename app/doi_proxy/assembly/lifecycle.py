"""The state of a running process that can change: its settings, and whether it is draining."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Any, Final

from doi_proxy.assembly.settings import Settings, mask_settings
from doi_proxy.assembly.settings.sources import names_from_files
from doi_proxy.errors import ConfigurationError
from doi_proxy.system.files import explain_failure

log = logging.getLogger(__name__)

#: Seconds between two cancellations of a task that is still running, and how many there are.
_CANCEL_INTERVAL: Final = 0.1
_MAX_CANCELS: Final = 50

#: Applies new settings to one part. Raises ConfigurationError, and then changes nothing. Another error counts too.
Apply = Callable[[Settings], None]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part that can be reloaded, with the names of the settings that it uses."""

    apply: Apply
    names: frozenset[str]


class Lifecycle:
    """The settings in force, the parts that follow a reload, and whether the process is draining."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        #: Whether `/readyz` answers 503, because the process is about to end.
        self.draining = False
        #: The reloads since the start, and whether something could not be used at the last one.
        self.reloads, self.reload_failed = 0, False
        #: Reloads the service. None where nothing follows a reload.
        self.request_reload: Callable[[], None] | None = None
        self._parts: list[_Part] = []

    def on_reload(self, apply: Apply, *names: str) -> None:
        """Call `apply` at each reload, even if no setting has changed: a file that a setting names may have."""
        self._parts.append(_Part(apply, frozenset(names)))

    @property
    def reloaded(self) -> frozenset[str]:
        """The names of the settings that the parts reload."""
        return frozenset().union(*(part.names for part in self._parts))

    def show_settings(self) -> dict[str, Any]:
        """The settings in force, with secrets masked."""
        return dict(mask_settings(self.settings, names_from_files(os.environ, Settings.model_fields)))

    def start_draining(self) -> None:
        """Answer 503 at `/readyz` from now on."""
        self.draining = True

    def reload(self, fresh: Settings | None) -> None:
        """Apply the reloadable settings. A part that cannot use them keeps its previous ones and logs the reason.

        None for settings that cannot be used as a whole. The files that the previous ones name are read again.
        """
        before, unchanged = self.settings, set[str]()
        after = before if fresh is None else merge(before, fresh)
        self.reloads, self.reload_failed = self.reloads + 1, fresh is None
        for part in self._parts:
            try:
                part.apply(after)
            except Exception as error:
                # Catch everything: a part that is short of files must not keep the reload from the parts after it.
                log.error(
                    "reload failed, the previous settings stay in force: %s; correct it, and reload again",
                    error.message if isinstance(error, ConfigurationError) else explain_failure(error),
                    exc_info=None if isinstance(error, (ConfigurationError, OSError)) else error,
                )
                unchanged |= part.names
                self.reload_failed = True
        self.settings = _replace(after, before, unchanged)


async def end_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended.

    One cancellation is not enough for a task that uses the store in a loop. redis-py sends with `asyncio.wait_for`. In
    Python 3.11 that loses a cancellation which arrives together with its result (python/cpython#86296).
    """
    pending = set(tasks)
    for _ in range(_MAX_CANCELS):
        if not pending:
            return
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_INTERVAL)


def merge(in_force: Settings, fresh: Settings) -> Settings:
    """The settings in force with the reloadable ones from `fresh`."""
    return _replace(in_force, fresh, in_force.reloadable())


def _replace(settings: Settings, others: Settings, names: Set[str]) -> Settings:
    """The settings with those of `names` from others. Each counts as set if it does where it comes from."""
    is_set = settings.model_fields_set - names | others.model_fields_set & names
    values = dict(settings) | {name: getattr(others, name) for name in names}
    replaced = Settings.model_construct(_fields_set=is_set, **values)
    replaced._departed = others.departed
    return replaced


def reload_settings(in_force: Settings, load: Callable[[], Settings]) -> Settings | None:
    """Load the settings again and log the differences. Returns None if the new settings cannot be used."""
    try:
        fresh = load()
    except ConfigurationError as error:
        log.error(
            "SIGHUP: reload failed, the previous settings stay in force: %s; correct it, and reload again",
            error.message,
        )
        return None
    changed = {name for name in Settings.model_fields if getattr(fresh, name) != getattr(in_force, name)}
    log.info("SIGHUP: reloading; settings that changed: %s", _join(changed & in_force.reloadable()))
    if unapplied := changed - in_force.reloadable():
        log.warning("SIGHUP: these settings changed and need a restart: %s", _join(unapplied))
    return fresh


def _join(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
