"""A process that reads parts of registry files, and writes their records in sorted runs."""

from __future__ import annotations

import fcntl
import gc
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec

from doi_proxy.features.registry import import_streams, reading
from doi_proxy.features.registry.crossref import CrossrefReader
from doi_proxy.features.registry.csv_file import InvalidTable, TableReader, read_table_form
from doi_proxy.features.registry.datacite import DataCiteReader
from doi_proxy.features.registry.import_job import hold_folder
from doi_proxy.features.registry.import_parts import MAX_RECORD_BYTES, Part
from doi_proxy.features.registry.import_runs import PartReport, RunHeader, run_path, write_run
from doi_proxy.features.registry.record import RecordDates, RegistryRecord
from doi_proxy.features.registry.wire import RegistryRow, to_row
from doi_proxy.system.files import open_regular

#: Characters of keys and URLs from which a run is written. They take about four times as much in memory.
_RUN_BYTES: Final = 48 * 1024 * 1024
#: Seconds after which a run is written, so that a kill costs no more. At full speed, a run has its rows earlier.
RUN_SECONDS: Final = 10.0
#: Limit of the decompressed bytes and of the records of one part. A longer one is refused as a part.
_MAX_PART_BYTES: Final = 2 * 1024 * 1024 * 1024
_MAX_PART_RECORDS: Final = 2_000_000
_READ_BYTES: Final = 256 * 1024
#: Bytes that are decoded at a time. They stay in the processor's caches: with 8 MiB, a work of Crossref takes 27 µs
#: instead of 19.
_BLOCK_BYTES: Final = 256 * 1024
#: Bytes in which the format is looked for. A document can have 100 MB.
_DETECT_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What a process needs to know."""

    folder: Path
    session: int
    worker: int
    form: reading.RegistryFormat | None
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
        if sum(len(part.reasons) for part in self._parts[-reading.MAX_REASONS :]) >= reading.MAX_REASONS:
            report = msgspec.structs.replace(report, reasons=[])
        if not self._parts:
            self._began = self._clock()
        self._parts.append(report)
        self._rows += rows
        self._bytes += sum(len(key) + len(url) for key, _, _, url in rows)
        is_full = len(self._rows) >= self._options.run_rows or self._bytes >= _RUN_BYTES
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
    findings, failure, left_out, has_states = reading.Findings(), "", "", False
    try:
        for records in _read_blocks(part, options, findings):
            for record in records:
                if record.date >= options.since:
                    rows.append(to_row(record))
                agencies.add(record.agency)
            if len(rows) > _MAX_PART_RECORDS:
                raise import_streams.UnreadablePart(f"it has more than {_MAX_PART_RECORDS} records; split the file")
    except ListOfStates:
        has_states = True
    except UnknownFormat as error:
        left_out = str(error)
    except (import_streams.UnreadablePart, import_streams.OversizeRecord, InvalidTable) as error:
        failure = str(error)
    except OSError as error:
        failure = f"it cannot be read to its end: {error.strerror or error}"
    counts = findings.read, len(rows), findings.drafts, findings.refused
    found = findings.reasons, sorted(agencies)
    return PartReport(part.name, *counts, *found, failure, left_out, findings.several, has_states), rows


def _read_blocks(part: Part, options: WorkerOptions, findings: reading.Findings) -> Iterator[list[RegistryRecord]]:
    """The records of each block. `findings` counts those of the whole part."""
    dates = RecordDates(default=part.date, latest=options.now)
    reader: reading.BlockReader | None = None
    for block in import_streams.cut_blocks(_open(part), _BLOCK_BYTES, MAX_RECORD_BYTES):
        reader = reader or _choose_reader(part, block, options.form)
        reader.read(block, dates, findings)
        yield findings.records
        findings.records = []


def _choose_reader(part: Part, block: bytes, form: reading.RegistryFormat | None) -> reading.BlockReader:
    """The reader for a part, from its first block. Raises ListOfStates, UnknownFormat and InvalidTable."""
    head = (part.first_line or block)[:_DETECT_BYTES]
    if reading.is_list_of_states(head):
        raise ListOfStates
    form = form or reading.detect_format(head)
    if form is reading.RegistryFormat.CROSSREF:
        return CrossrefReader()
    if form is reading.RegistryFormat.DATACITE:
        return DataCiteReader()
    if form is reading.RegistryFormat.CSV:
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
    for piece in import_streams.gunzip(pieces) if import_streams.is_gzip(first) else pieces:
        total += len(piece)
        if total > _MAX_PART_BYTES:
            raise import_streams.UnreadablePart(
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
                raise import_streams.UnreadablePart("the file was cut while it was read; begin again")
            left -= len(piece)
            yield piece
