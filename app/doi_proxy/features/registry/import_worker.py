"""A process that reads parts of registry files, and writes their records in sorted runs."""

from __future__ import annotations

import fcntl
import gc
import multiprocessing
import signal
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from operator import itemgetter
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import BinaryIO, Final, Self, TypeVar

import msgspec

from doi_proxy.errors import ConfigurationError, DoiProxyError
from doi_proxy.features.registry import import_parts, json_values
from doi_proxy.features.registry.import_job import hold_folder
from doi_proxy.features.registry.import_parts import MAX_RECORD_BYTES, DamagedData, Part, library
from doi_proxy.features.registry.json_values import (
    CrossrefReader,
    DataCiteReader,
    InvalidTable,
    RecordDates,
    RegistryRecord,
    TableReader,
    read_table_form,
)
from doi_proxy.features.registry.sqlite_blocks import RegistryRow, to_row
from doi_proxy.system.files import PARTIAL, Replacement, open_regular

#: Rows in a block of a run. A merge holds one block of each run in memory.
BLOCK_ROWS: Final = 1_000
#: Runs that are merged at a time. More are merged into longer ones first.
MAX_MERGED: Final = 128
_SUFFIX: Final = ".run"
_LENGTH: Final = Struct("<I")
_LEVEL: Final = 1
_KEY: Final = itemgetter(0)
Kind = TypeVar("Kind")


class PartReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What was read from a part of a file."""

    name: str
    read: int = 0
    records: int = 0
    drafts: int = 0
    refused: int = 0
    reasons: list[str] = []
    agencies: list[str] = []
    #: Why the part could not be read to its end, empty if it could.
    failure: str = ""
    #: Why the part was left out, empty if it was not.
    left_out: str = ""
    #: Records with further URLs, and whether the part is a list of states. An older run has neither.
    several: int = 0
    is_list_of_states: bool = False


class RunHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The parts whose rows are in a run, and the runs that it replaces."""

    parts: list[PartReport]
    rows: int
    replaces: list[str] = []


class Run:
    """A run that is complete."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigurationError if the file is damaged."""
        self.path = path
        with open_regular(path) as file:
            self.header = _decode(path, _read_frame(file), RunHeader)

    def blocks(self) -> Iterator[list[RegistryRow]]:
        """The rows in the order of their keys, in blocks."""
        with open_regular(self.path) as file:
            _read_frame(file)
            while frame := _read_frame(file):
                columns = _decode(self.path, frame, tuple[list[str], list[int], list[str], list[str]])
                yield list(zip(*columns, strict=True))


def write_run(path: Path, header: RunHeader, blocks: Iterable[Sequence[RegistryRow]]) -> None:
    """Write rows in the order of their keys. The file appears under its name when it is complete. Raises OSError."""
    with Replacement(path) as replacement:
        file = replacement.file
        _write_frame(file, msgspec.msgpack.encode(header))
        for block in blocks:
            for at in range(0, len(block), BLOCK_ROWS):
                columns = tuple(zip(*block[at : at + BLOCK_ROWS], strict=True))
                _write_frame(file, msgspec.msgpack.encode(columns))
        replacement.put()


def run_path(folder: Path, session: int, worker: int, number: int) -> Path:
    """The path of a run. Its session is new for each start of the program."""
    return folder / f"{session:04}-{worker:02}-{number:06}{_SUFFIX}"


def next_session(folder: Path) -> int:
    """A number that no run of this folder has yet."""
    return 1 + max((int(path.name.partition("-")[0]) for path in folder.glob(f"*{_SUFFIX}")), default=0)


def open_runs(folder: Path) -> list[Run]:
    """The complete runs of a folder. Files of a run that was not finished, and runs that were merged, are removed."""
    for partial in folder.glob(f"*{PARTIAL}"):
        partial.unlink()
    runs = {path.name: Run(path) for path in sorted(folder.glob(f"*{_SUFFIX}"))}
    for replaced in [name for run in runs.values() for name in run.header.replaces]:
        if (run := runs.pop(replaced, None)) is not None:
            run.path.unlink()
    return list(runs.values())


def limit_runs(folder: Path, runs: list[Run], session: int) -> list[Run]:
    """Merge runs into longer ones until there are at most MAX_MERGED. Raises OSError."""
    number = 0
    while len(runs) > MAX_MERGED:
        runs.sort(key=lambda run: run.header.rows)
        merged, runs = runs[:MAX_MERGED], runs[MAX_MERGED:]
        number += 1
        header = RunHeader(
            [part for run in merged for part in run.header.parts],
            sum(run.header.rows for run in merged),
            [run.path.name for run in merged],
        )
        path = run_path(folder, session, 99, number)
        write_run(path, header, merge_rows([run.blocks() for run in merged]))
        for run in merged:
            run.path.unlink()
        runs.append(Run(path))
    return runs


class _Head:
    """The next rows of a run."""

    def __init__(self, blocks: Iterator[list[RegistryRow]]) -> None:
        self._blocks = blocks
        self.rows: list[RegistryRow] = []
        self.at = 0
        self.refill()

    def refill(self) -> bool:
        """Read the next block if no row is left. False at the end of the run."""
        while self.at >= len(self.rows):
            block = next(self._blocks, None)
            if block is None:
                return False
            self.rows, self.at = block, 0
        return True


def merge_rows(runs: Sequence[Iterator[list[RegistryRow]]]) -> Iterator[list[RegistryRow]]:
    """All rows in the order of their keys, in blocks. Equal keys are in one block, in no certain order.

    A block holds all rows up to the smallest last key of the blocks in memory. They are sorted as a list: Python's sort
    merges the runs in it without a step of Python for each row.
    """
    heads = [head for run in runs if (head := _Head(run)).rows]
    while heads:
        bound = min(head.rows[-1][0] for head in heads)
        block: list[RegistryRow] = []
        for head in heads:
            while head.at < len(head.rows):
                end = bisect_right(head.rows, bound, lo=head.at, key=_KEY)
                block += head.rows[head.at : end]
                head.at = end
                # The next block can begin with the same key.
                if end < len(head.rows) or not head.refill():
                    break
        heads = [head for head in heads if head.at < len(head.rows)]
        block.sort(key=_KEY)
        yield block


def keep_newest(block: Sequence[RegistryRow]) -> tuple[list[RegistryRow], int]:
    """The newest row of each key, and the number of the others. Among rows of one date, agency and URL decide."""
    kept: dict[str, RegistryRow] = {}
    for row in block:
        before = kept.get(row[0])
        # The keys are the same, so the other fields decide, from the date on.
        if before is None or row > before:
            kept[row[0]] = row
    return list(kept.values()), len(block) - len(kept)


def _write_frame(file: BinaryIO, data: bytes) -> None:
    # A frame becomes a quarter as long, in 0.3 µs a row.
    compressed = library.compress(data, _LEVEL)
    file.write(_LENGTH.pack(len(compressed)))
    file.write(compressed)


def _read_frame(file: BinaryIO) -> bytes:
    prefix = file.read(_LENGTH.size)
    return file.read(*_LENGTH.unpack(prefix)) if len(prefix) == _LENGTH.size else b""


def _decode(path: Path, frame: bytes, kind: type[Kind]) -> Kind:
    try:
        return msgspec.msgpack.decode(library.decompress(frame), type=kind)
    except (msgspec.DecodeError, ValueError, DamagedData) as error:
        raise ConfigurationError(f"{path}: this file of an import is damaged; --restart begins again") from error


#: Seconds after which a run is written, so that a kill costs no more. At full speed, a run has its rows earlier.
RUN_SECONDS: Final = 10.0
#: Limit of the decompressed bytes and of the records of one part. A longer one is refused as a part.
_MAX_PART_BYTES: Final = 2 * 1024 * 1024 * 1024
_MAX_PART_RECORDS: Final = 2_000_000
_READ_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a process needs to know."""

    folder: Path
    session: int
    worker: int
    form: json_values.RegistryFormat | None
    #: Records with an earlier date are not imported, in seconds since the epoch.
    since: int
    #: The latest plausible date, in seconds since the epoch.
    now: int
    #: Rows from which a run is written.
    run_rows: int


def run_worker(connection: Connection, options: WorkerOptions) -> None:
    """Read the parts that arrive, and answer each with its report, or with the reason of a failure. None is the end.

    If the process at the other end is killed, the connection ends, and so does this process.
    """
    # Ctrl+C reaches all processes. The first process decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Records refer to nothing that refers back. The collector took a fifth of the time of reading.
    gc.disable()
    try:
        with hold_folder(options.folder, fcntl.LOCK_SH):
            # A part can wait in the pipe although its sender was killed. From here on, a new import waits for the lock.
            parent = parent_process()
            if parent is not None and not parent.is_alive():
                return
            writer = RunWriter(options, time.monotonic)
            while (part := _receive(connection, writer)) is not None:
                report, rows = read_part(part, options)
                writer.add(report, rows)
                connection.send(report)
            writer.write()
        connection.send(None)
    except (EOFError, BrokenPipeError):
        return
    except OSError as error:
        connection.send(f"{options.folder}: cannot be written: {error.strerror or error}")


def _receive(connection: Connection, writer: RunWriter) -> Part | None:
    """The next part, None at the end. While there is none yet, rows that are due are written."""
    while not connection.poll(writer.seconds_left()):
        writer.write()
    part: Part | None = connection.recv()
    return part


class UnknownFormat(ValueError):
    """The format of a part is not known. An archive can contain files without records."""


class ListOfStates(ValueError):
    """A part has names and states, and no URLs. DataCite's archives have one for each month."""


class RunWriter:
    """Collects the rows of parts, and writes them as a run when they are many, or have waited for RUN_SECONDS."""

    def __init__(self, options: WorkerOptions, clock: Callable[[], float]) -> None:
        """`clock` gives seconds from any origin."""
        self._options = options
        self._clock = clock
        self._began = 0.0
        self._parts: list[PartReport] = []
        self._rows: list[RegistryRow] = []
        self._bytes = 0
        self._number = 0

    def add(self, report: PartReport, rows: list[RegistryRow]) -> None:
        """Add the rows of one part. Raises OSError."""
        if sum(len(part.reasons) for part in self._parts[-json_values.MAX_REASONS :]) >= json_values.MAX_REASONS:
            report = msgspec.structs.replace(report, reasons=[])
        if not self._parts:
            self._began = self._clock()
        self._parts.append(report)
        self._rows += rows
        self._bytes += sum(len(key) + len(url) for key, _, _, url in rows)
        # Characters of keys and URLs from which a run is written. They take about four times as much in memory.
        is_full = len(self._rows) >= self._options.run_rows or self._bytes >= (48 * 1024 * 1024)
        if is_full or self.seconds_left() == 0.0:
            self.write()

    def seconds_left(self) -> float | None:
        """The seconds until the rows that wait are due, at least 0. None if no row waits."""
        return max(0.0, self._began + RUN_SECONDS - self._clock()) if self._parts else None

    def write(self) -> None:
        """Write all rows that wait. Raises OSError."""
        if not self._parts:
            return
        self._rows.sort(key=itemgetter(0))
        self._number += 1
        path = run_path(self._options.folder, self._options.session, self._options.worker, self._number)
        write_run(path, RunHeader(self._parts, len(self._rows)), [self._rows])
        self._parts, self._rows, self._bytes = [], [], 0


def read_part(part: Part, options: WorkerOptions) -> tuple[PartReport, list[RegistryRow]]:
    """Read one part: its report and its rows, in the order of the file. What was read before a failure counts."""
    rows: list[RegistryRow] = []
    agencies: set[str] = set()
    findings, failure, left_out, has_states = json_values.Findings(), "", "", False
    try:
        for records in _read_blocks(part, options, findings):
            for record in records:
                if record.date >= options.since:
                    rows.append(to_row(record))
                agencies.add(record.agency)
            if len(rows) > _MAX_PART_RECORDS:
                raise import_parts.UnreadablePart(f"it has more than {_MAX_PART_RECORDS} records; split the file")
    except ListOfStates:
        has_states = True
    except UnknownFormat as error:
        left_out = str(error)
    except (import_parts.UnreadablePart, import_parts.OversizeRecord, InvalidTable) as error:
        failure = str(error)
    except OSError as error:
        failure = f"it cannot be read to its end: {error.strerror or error}"
    counts = findings.read, len(rows), findings.drafts, findings.refused
    found = findings.reasons, sorted(agencies)
    return PartReport(part.name, *counts, *found, failure, left_out, findings.several, has_states), rows


def _read_blocks(part: Part, options: WorkerOptions, findings: json_values.Findings) -> Iterator[list[RegistryRecord]]:
    """The records of each block. `findings` counts those of the whole part."""
    dates = RecordDates(default=part.date, latest=options.now)
    reader: json_values.BlockReader | None = None
    # Bytes that are decoded at a time. They stay in the processor's caches: with 8 MiB, a work of Crossref takes 27 µs
    # instead of 19.
    for block in import_parts.cut_blocks(_open(part), 256 * 1024, MAX_RECORD_BYTES):
        reader = reader or _choose_reader(part, block, options.form)
        reader.read(block, dates, findings)
        yield findings.records
        findings.records = []


def _choose_reader(part: Part, block: bytes, form: json_values.RegistryFormat | None) -> json_values.BlockReader:
    """The reader for a part, from its first block. Raises ListOfStates, UnknownFormat and InvalidTable."""
    # Bytes in which the format is looked for. A document can have 100 MB.
    head = (part.first_line or block)[: 1024 * 1024]
    if json_values.is_list_of_states(head):
        raise ListOfStates
    form = form or json_values.detect_format(head)
    if form is json_values.RegistryFormat.CROSSREF:
        return CrossrefReader()
    if form is json_values.RegistryFormat.DATACITE:
        return DataCiteReader()
    if form is json_values.RegistryFormat.CSV:
        table = read_table_form(part.first_line or block.partition(b"\n")[0])
        # A later block of the file does not have the line with the names of the columns.
        return TableReader(replace(table, has_header=False) if part.first_line else table)
    raise UnknownFormat("is not a file of Crossref or DataCite, and not a table with the columns doi and url")


def _open(part: Part) -> Iterator[bytes]:
    """The decompressed bytes of a part, in pieces. Raises UnreadablePart and OSError."""
    pieces = iter((part.data,)) if part.data else _read_slice(part)
    first = next(pieces, b"")
    pieces = chain((first,), pieces)
    total = 0
    for piece in import_parts.gunzip(pieces) if import_parts.is_gzip(first) else pieces:
        total += len(piece)
        if total > _MAX_PART_BYTES:
            raise import_parts.UnreadablePart(
                f"it decompresses to more than {_MAX_PART_BYTES} bytes; decompress it first"
            )
        yield piece


def _read_slice(part: Part) -> Iterator[bytes]:
    left = part.length
    if not left:
        return
    with open_regular(Path(part.path)) as file:
        file.seek(part.offset)
        while left:
            piece = file.read(min(left, _READ_BYTES))
            if not piece:
                raise import_parts.UnreadablePart("the file was cut while it was read; begin again")
            left -= len(piece)
            yield piece


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
