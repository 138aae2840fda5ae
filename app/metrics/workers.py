"""Where counts are kept and how `/metrics` writes them: of one process, or summed over the workers of a machine.

Workers sum by prometheus-client's multiprocess mode: each keeps its numbers in memory-mapped files of one folder, and
whichever is asked reads them all. A worker's files are named by the number of a place that it holds by a file lock, as
long as it lives: the next worker takes the place of a dead one and counts on, so that nothing is lost but what a killed
worker counted in its last second, and there are no more files than there were workers at once.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, disable_created_metrics, values
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.openmetrics import exposition as openmetrics

from app.errors import ConfigurationError

#: Names the folder; prometheus-client reads it from the environment of each worker.
FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
#: Workers at once: twice the most that a setting allows, for those that are just being replaced.
MOST_PLACES: Final = 128
#: How the folders begin that `fresh_folder` makes.
FOLDER_PREFIX: Final = "doi-proxy-counts-"
_OPENMETRICS: Final = "application/openmetrics-text"


@dataclass(frozen=True, slots=True)
class Exposed:
    """What `/metrics` answers."""

    content_type: str
    body: bytes


class Exposition:
    """The registry of a process, and the text of its metrics. One of them in a process counts at a time."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` is what FOLDER_VARIABLE names, None where no other worker counts. Raises ConfigurationError."""
        self.registry = CollectorRegistry()
        #: Called before anybody reads: each hands over what it counted since the last time.
        self.tallies: list[Callable[[], None]] = []
        self._places = None if folder is None else Places(folder)
        # Set here because the library otherwise decides when it is imported, by the environment alone.
        if self._places is None:
            values.ValueClass = values.MutexValue
        else:
            number = self._places.take()
            values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]
        # The time at which each series began would double their number, and several workers have no such time.
        disable_created_metrics()  # type: ignore[no-untyped-call]

    @property
    def is_shared(self) -> bool:
        """Whether other workers count too."""
        return self._places is not None

    def tell(self) -> None:
        """Let everything that was counted in this process stand where it is read."""
        for tell in self.tallies:
            tell()

    def write(self, accept: str | None) -> Exposed:
        """The metrics of all workers as Prometheus' text, or as OpenMetrics where `accept` names that."""
        self.tell()
        registry = self.registry
        if self._places is not None:
            self._places.forget_the_dead()
            registry = CollectorRegistry()
            MultiProcessCollector(registry, path=str(self._places.folder))  # type: ignore[no-untyped-call]
        if _OPENMETRICS in (accept or "").lower():
            return Exposed(openmetrics.CONTENT_TYPE_LATEST, openmetrics.generate_latest(registry))  # type: ignore[no-untyped-call]
        return Exposed(CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry))


class Places:
    """The numbers of the workers that share a folder, each held by the lock of one file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: list[int] = []

    def take(self) -> int:
        """The first number that nobody holds, held until this process ends. Raises ConfigurationError."""
        for number in range(MOST_PLACES):
            lock = _lock(self._file(number))
            if lock is not None:
                self._held.append(lock)
                self._forget_state(number)
                return number
        raise ConfigurationError(f"{FOLDER_VARIABLE}={self.folder}: it cannot be used, or {MOST_PLACES} workers do")

    def forget_the_dead(self) -> None:
        """Drop what is only true of a live worker, such as its questions under way, where there is none any more."""
        for file in self.folder.glob("place-*.lock"):
            lock = _lock(file)
            if lock is not None:
                # Held meanwhile, so that no new worker begins in it.
                self._forget_state(int(file.stem.removeprefix("place-")))
                os.close(lock)

    def _file(self, number: int) -> Path:
        return self.folder / f"place-{number}.lock"

    def _forget_state(self, number: int) -> None:
        # Another worker may do the same at this moment.
        with suppress(FileNotFoundError):
            mark_process_dead(number, path=str(self.folder))  # type: ignore[no-untyped-call]


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """A new folder for the workers' counts, removed at the end. Raises ConfigurationError.

    Those that services of this user left behind because they were killed are removed as well.
    """
    try:
        parent = Path(tempfile.gettempdir())
        for left in parent.glob(f"{FOLDER_PREFIX}*"):
            _remove_if_left(left)
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
    except OSError as error:
        raise ConfigurationError(
            f"--workers: no temporary folder can be made for the workers' counts; set TMPDIR ({error})"
        ) from error
    held = _lock(folder, os.O_RDONLY)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


def _remove_if_left(folder: Path) -> None:
    """Remove a folder whose service and workers are all gone; one that is new may not be locked yet."""
    locks = [_lock(folder, os.O_RDONLY)]
    # Workers go on for a while without the service that started them.
    locks += [_lock(file, os.O_RDWR) for file in folder.glob("place-*.lock")]
    if len(locks) > 1 and None not in locks:
        shutil.rmtree(folder, ignore_errors=True)
    for lock in locks:
        if lock is not None:
            os.close(lock)


def _lock(file: Path, mode: int = os.O_RDWR | os.O_CREAT) -> int | None:
    """The file, opened and locked, or None where somebody holds it or it cannot be opened."""
    try:
        opened = os.open(file, mode | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        return None
    return opened
