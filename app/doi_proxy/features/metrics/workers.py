"""The text of `/metrics`: the metrics of one process, or their sums over the workers of a machine.

Workers use prometheus-client's multiprocess mode: each keeps its metrics in memory-mapped files in one folder, and a
scrape reads the files of all workers. A worker's files are named by its slot, a number that it holds with a file lock
as long as it runs. The next worker takes the slot of a dead one and counts on. A killed worker therefore loses only the
counts of its last second, and there are as many files as slots.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, disable_created_metrics, values
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.openmetrics import exposition as openmetrics

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.metrics.durations import assemble_histograms
from doi_proxy.sharing.folder import FOLDER_VARIABLE
from doi_proxy.system.files import lock_beside

#: Twice the highest number of workers in the settings, because a worker and its replacement can overlap.
MAX_SLOTS: Final = 128
#: Reads of the files before one without a size is a fault.
_READS: Final = 20
_OPENMETRICS: Final = "application/openmetrics-text"


@dataclass(frozen=True, slots=True)
class MetricsText:
    """The body of an answer of `/metrics`, with its media type."""

    content_type: str
    body: bytes


class Exposition:
    """The registry of a process, and the text of its metrics. Only the newest one in a process counts."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` is the value of FOLDER_VARIABLE, None for a single process. Raises ConfigurationError."""
        self.registry = CollectorRegistry()
        #: Called before a scrape: each adds its plain numbers to its prometheus-client counters.
        self.flushers: list[Callable[[], None]] = []
        self._slots = None if folder is None else WorkerSlots(folder)
        # The library would otherwise decide at import, from the environment.
        if self._slots is None:
            values.ValueClass = values.MutexValue
        else:
            number = self._slots.take()
            values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]
        # A `_created` series for each series would double their number, and several workers have no common start.
        disable_created_metrics()  # type: ignore[no-untyped-call]

    @property
    def is_shared(self) -> bool:
        """Whether other workers share the metrics."""
        return self._slots is not None

    def flush(self) -> None:
        """Add the plain numbers of this process to the counters that a scrape reads."""
        for flush in self.flushers:
            flush()

    def write(self, accept: str | None) -> MetricsText:
        """The metrics of all workers, in OpenMetrics if `accept` lists it, else in Prometheus' text format."""
        self.flush()
        registry = CollectorRegistry()
        registry.register(self)
        if _OPENMETRICS in (accept or "").lower():
            return MetricsText(openmetrics.CONTENT_TYPE_LATEST, openmetrics.generate_latest(registry))  # type: ignore[no-untyped-call]
        return MetricsText(CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry))

    def collect(self) -> Iterator[Metric]:
        """The metrics of all workers (prometheus-client's Collector)."""
        if self._slots is None:
            return assemble_histograms(self.registry.collect())
        self._slots.drop_ended_workers()
        workers = MultiProcessCollector(None, path=str(self._slots.folder))  # type: ignore[no-untyped-call]
        return assemble_histograms(_read_files(workers))


def _read_files(workers: MultiProcessCollector) -> Iterable[Metric]:
    """What the files of all workers have. A worker that starts creates a file, and gives it a size a moment later."""
    for _ in range(_READS - 1):
        with suppress(struct.error):  # a file has no size yet
            return list(workers.collect())  # type: ignore[no-untyped-call]
    return list(workers.collect())  # type: ignore[no-untyped-call]


class WorkerSlots:
    """The slots of the workers that share a folder. A worker holds a slot by locking its file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: list[int] = []

    def take(self) -> int:
        """Take the first free slot until this process ends, and return its number. Raises ConfigurationError."""
        for number in range(MAX_SLOTS):
            lock = lock_beside(self._file(number))
            if lock is not None:
                self._held.append(lock)
                self._drop_state(number)
                return number
        raise ConfigurationError(
            f"{FOLDER_VARIABLE}={self.folder}: the folder is not writable, or {MAX_SLOTS} workers use it; set "
            "TMPDIR to a writable folder and restart"
        )

    def drop_ended_workers(self) -> None:
        """Drop the gauges of workers that have ended, such as their queries under way."""
        for file in self.folder.glob("slot-*.lock"):
            lock = lock_beside(file)
            if lock is not None:
                # The lock keeps a new worker out of the slot meanwhile.
                self._drop_state(int(file.stem.removeprefix("slot-")))
                os.close(lock)

    def _file(self, number: int) -> Path:
        return self.folder / f"slot-{number}.lock"

    def _drop_state(self, number: int) -> None:
        # Another worker may drop the same files at this moment.
        with suppress(FileNotFoundError):
            mark_process_dead(number, path=str(self.folder))  # type: ignore[no-untyped-call]
