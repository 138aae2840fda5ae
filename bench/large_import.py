"""Imports of tables with millions of rows by `doi-proxy cache import`: whole ones, and one that is killed twice."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import gcd
from pathlib import Path
from typing import Final

import psutil

from bench.registry_names import RegistryNames
from bench.servers import plain_environment, program
from bench.tools import NotMeasured
from doi_proxy.features.registry.sqlite_blocks import RegistryTable

#: Rows of a file. The files of an import hold the names in another order than the store.
_FILE_ROWS: Final = 250_000
_STRIDE: Final = 7_368_787
_PROCESSES: Final = 2
#: Seconds between two looks at the processes of an import, and until an import must be finished.
_LOOK_EVERY: Final = 0.2
_PATIENCE: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Imported:
    """A store that was built. Times are in seconds; `peak` is the largest resident memory of one process, in bytes."""

    path: Path
    names: RegistryNames
    seconds: float
    cpu: float
    peak: int

    @property
    def bytes(self) -> int:
        """The length of the file."""
        return self.path.stat().st_size


def write_tables(folder: Path, names: RegistryNames) -> None:
    """Write tables with the records of all names, in no order of theirs."""
    folder.mkdir()
    with ProcessPoolExecutor(_PROCESSES) as pool:
        list(pool.map(partial(_write_table, folder, names), range(0, names.records, _FILE_ROWS)))


def _write_table(folder: Path, names: RegistryNames, start: int) -> None:
    stride = _stride(names.records)
    with (folder / f"{start:010}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("doi", "url", "agency", "date"))
        for place in range(start, min(start + _FILE_ROWS, names.records)):
            key, date, agency, url = names.row(names.name(place * stride % names.records))
            writer.writerow((key, url, agency, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(date))))


def _stride(records: int) -> int:
    """A number that reaches every place: it has no divisor in common with the number of records."""
    return next(stride for stride in range(_STRIDE, 2 * _STRIDE) if gcd(stride, records) == 1)


def import_tables(tables: Path, path: Path, names: RegistryNames) -> Imported:
    """Import the tables into a new store. Raises NotMeasured if a record is missing."""
    _remove(path)
    began = time.perf_counter()
    with _importing(tables, path) as process:
        cpu, peak = _watch(process, lambda: False)
    seconds = time.perf_counter() - began
    if process.returncode != 0:
        raise NotMeasured(f"not measured: the import ended with status {process.returncode}")
    _check(path, names)
    return Imported(path, names, seconds, cpu, peak)


def import_with_kills(tables: Path, path: Path, names: RegistryNames) -> list[str]:
    """Import the tables while all processes are killed twice, and continue each time. Returns when they were killed."""
    _remove(path)
    staging = path.with_name(path.name + ".import")
    moments = [
        ("reading", lambda: staging.exists() and staging.stat().st_size > 1024 * 1024),
        ("storing", lambda: _stored(path) > names.records // 3),
    ]
    killed = []
    for step, is_reached in moments:
        with _importing(tables, path) as process:
            _watch(process, is_reached)
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                killed.append(f"{step}, with {_stored(path):,} records stored")
    with _importing(tables, path) as process:
        _watch(process, lambda: False)
    if process.returncode != 0:
        raise NotMeasured(f"not measured: the last import ended with status {process.returncode}")
    _check(path, names)
    return killed


@contextmanager
def _importing(tables: Path, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command as it runs, in a process group of its own. It is killed if the caller leaves before its end."""
    process = subprocess.Popen(
        [program("doi-proxy"), "cache", "import", str(tables)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**plain_environment(), "DOI_PROXY_STORE_URL": f"sqlite:///{path}"},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _watch(process: subprocess.Popen[bytes], is_reached: Callable[[], bool]) -> tuple[float, int]:
    """Wait for the end, or for a moment. Returns the processor time of all processes, and the largest memory of one."""
    deadline = time.monotonic() + _PATIENCE
    cpu: dict[int, float] = {}
    peak = 0
    while process.poll() is None and not is_reached():
        if time.monotonic() > deadline:
            raise NotMeasured(f"not measured: the import took longer than {_PATIENCE:.0f} s")
        for one in _processes(process.pid):
            try:
                with one.oneshot():
                    cpu[one.pid] = sum(one.cpu_times()[:2])
                    peak = max(peak, int(one.memory_info().rss))
            except psutil.Error:
                continue
        time.sleep(_LOOK_EVERY)
    return sum(cpu.values()), peak


def _processes(leader: int) -> list[psutil.Process]:
    try:
        first = psutil.Process(leader)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


def _stored(path: Path) -> int:
    if not path.exists():
        return 0
    with RegistryTable(path, now=time.time()) as table:
        return table.count()


def _check(path: Path, names: RegistryNames) -> None:
    """Raises NotMeasured if the number of records differs. Equal keys are one record."""
    if (found := _stored(path)) != names.records:
        raise NotMeasured(f"not measured: {found:,} of {names.records:,} records arrived in the store")


def _remove(path: Path) -> None:
    for old in path.parent.glob(path.name + "*"):
        old.unlink()
