"""The state of a running process that can change: its settings, and whether it is draining."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from types import TracebackType
from typing import Any, Final

import msgspec

from doi_proxy.assembly.settings import Settings, mask_settings
from doi_proxy.assembly.settings.sources import names_from_files
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.feature import Core
from doi_proxy.system.check import Service
from doi_proxy.system.files import explain_failure
from doi_proxy.web.pages import Pages

log = logging.getLogger(__name__)

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
    # At most 50 cancellations, 0.1 s apart.
    for _ in range(50):
        if not pending:
            return
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.1)


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


_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
#: Priorities of the journal (sd-daemon(3), syslog(3)) by the lowest severity that has them.
_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))


class JSONFormatter(logging.Formatter):
    """Formats a record as one JSON object without line breaks: time, level, logger, message and, if any, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": time, "level": record.levelname.lower(), "logger": record.name}
        line["message"] = _encodable(record.getMessage().strip())
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = _encodable(self.formatException(record.exc_info))
        if record.stack_info:
            line["stack"] = _encodable(self.formatStack(record.stack_info))
        return msgspec.json.encode(line).decode()


class JournalFormatter(logging.Formatter):
    """Begins each line of another formatter with its priority, such as `<4>`, which the journal of systemd reads."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Format one record. A traceback has several lines, and each is an entry of the journal."""
        found = (priority for level, priority in _PRIORITIES if record.levelno >= level)
        # 7 is the priority of debugging.
        prefix = f"<{next(found, 7)}>"
        return "\n".join(prefix + line for line in self._formatter.format(record).split("\n"))


def goes_to_journal(environment: Mapping[str, str], descriptor: int) -> bool:
    """Whether a file is the stream to the journal that systemd names in JOURNAL_STREAM (systemd.exec(5))."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def begin_logging(settings: Settings) -> None:
    """Log to standard error: the program, its libraries, Python warnings, and the traceback of a crash."""
    handler = logging.StreamHandler()
    # 2 is standard error.
    is_journal = goes_to_journal(os.environ, 2)
    # The journal has the time of each line.
    text = logging.Formatter(_TEXT.removeprefix("%(asctime)s ") if is_journal else _TEXT)
    formatter = JSONFormatter() if settings.log_format == "json" else text
    handler.setFormatter(JournalFormatter(formatter) if is_journal else formatter)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _log_crash


def set_log_level(settings: Settings) -> None:
    """Set the lowest severity that is logged."""
    logging.getLogger().setLevel(settings.log_level.upper())


def _log_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        logging.getLogger(__name__).critical("the program crashed; please report this", exc_info=(kind, error, trace))


def _encodable(text: str) -> str:
    # Python represents a file name that is not UTF-8 with lone surrogates, which cannot be encoded.
    return text.encode("utf-8", "backslashreplace").decode()


#: Seconds between two ticks of the services.
TICK_INTERVAL: Final = 1.0


@asynccontextmanager
async def run_lifespan(core: Core, pages: Pages, services: Sequence[Service]) -> AsyncIterator[None]:
    """Start the services and run them. At the end, stop them in reverse, and close the parts of the core."""
    # What anyio runs on. The first streamed answer would import it in one turn of the event loop.
    await asyncio.to_thread(import_module, "anyio._backends._asyncio")
    for service in services:
        await service.start()
    runs = (core.cache.watch(), _tick(services), pages.prepare(), *(service.run() for service in services))
    tasks = [asyncio.create_task(run) for run in runs]
    try:
        yield
    finally:
        await end_tasks(tasks)
        await core.resolver.close()
        await core.upstream.source.aclose()
        await core.cache.close()
        for service in reversed(services):
            await service.stop()


async def _tick(services: Sequence[Service]) -> None:
    while True:
        due = time.perf_counter() + TICK_INTERVAL
        await asyncio.sleep(TICK_INTERVAL)
        late = max(0.0, time.perf_counter() - due)
        for service in services:
            service.tick(late)
