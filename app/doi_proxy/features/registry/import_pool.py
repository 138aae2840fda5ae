"""Processes that read the parts of registry files at the same time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType
from typing import Self

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.registry.import_parts import Part
from doi_proxy.features.registry.import_runs import PartReport
from doi_proxy.features.registry.import_worker import WorkerOptions, run_worker


class ImportPool:
    """Passes each part to a process that is free."""

    def __init__(self, options: list[WorkerOptions]) -> None:
        """Start a process for each of the options."""
        # A new interpreter shares no threads, locks and descriptors with this one.
        context = multiprocessing.get_context("spawn")
        self._workers: dict[Connection, SpawnProcess] = {}
        self._busy: dict[Connection, Part] = {}
        for worker_options in options:
            connection, worker_end = context.Pipe()
            process = context.Process(target=run_worker, args=(worker_end, worker_options), daemon=True)
            process.start()
            # While this process has the worker's end open too, it cannot detect that the worker has ended.
            worker_end.close()
            self._workers[connection] = process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for connection, process in self._workers.items():
            connection.close()
            # A worker whose connection is closed ends after its part.
            process.join()

    def submit(self, part: Part) -> Iterator[tuple[Part, PartReport]]:
        """Pass a part to a process. Waits until one is free, and returns the reports that arrive meanwhile."""
        if len(self._busy) == len(self._workers):
            yield from self._receive()
        free = next(connection for connection in self._workers if connection not in self._busy)
        self._busy[free] = part
        try:
            free.send(part)
        except OSError as error:
            raise self._failure(free) from error

    def finish(self) -> Iterator[tuple[Part, PartReport]]:
        """The reports of all other parts. Then the processes write the rows that they hold."""
        while self._busy:
            yield from self._receive()
        for connection in self._workers:
            with suppress(OSError):
                connection.send(None)
        for connection in self._workers:
            self._read(connection)

    def _receive(self) -> Iterator[tuple[Part, PartReport]]:
        for ready in wait(list(self._busy)):
            if not isinstance(ready, Connection):
                continue
            report = self._read(ready)
            part = self._busy.pop(ready)
            if report is not None:
                yield part, report

    def _read(self, connection: Connection) -> PartReport | None:
        try:
            report: PartReport | str | None = connection.recv()
        except (EOFError, OSError) as error:
            raise self._failure(connection) from error
        if isinstance(report, str):
            raise DoiProxyError(f"{report}; run the same command again to continue")
        return report

    def _failure(self, connection: Connection) -> DoiProxyError:
        process = self._workers[connection]
        process.join()
        return DoiProxyError(
            f"A process of the import ended with status {process.exitcode}; free memory or disk space, and run the "
            "same command again to continue."
        )
