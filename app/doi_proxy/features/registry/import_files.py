"""Imports the files of registration agencies: reads parts in several processes, sorts, and writes in key order.

What is read is staged in a file beside the store. Then it is merged into the table. Rows in key order fill each page of
the table once; rows in the order of the files would touch a page for each record.
"""

from __future__ import annotations

import multiprocessing
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Final

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.registry.import_parts import LeftOut, Part, find_parts, library, size_of_source
from doi_proxy.features.registry.import_worker import PartReport, ReadingOptions, begin_process, read_packed
from doi_proxy.features.registry.json_values import NO_TARGET, RegistryFormat, RegistryRow
from doi_proxy.features.registry.sqlite_blocks import Compress, RegistryTable
from doi_proxy.features.registry.staging import RunWriter, Staging
from doi_proxy.store.stored_entry import WINDOW_BITS, compress, read_dictionary_1
from doi_proxy.system.progress import Bar


class Missing(StrEnum):
    """What happens to names of the store that a complete file of their agency does not have."""

    COUNT = "count"
    FORGET = "forget"


#: isal at this level takes a third of the time of zlib for a block, which becomes 3.5 % longer.
_LEVEL: Final = 1


def choose_compress() -> Compress:
    """What compresses the text of a block. Without isal it is what compresses all that a store holds."""
    return compress if library is zlib else _compress


def _compress(data: bytes) -> bytes:
    work = library.compressobj(_LEVEL, zlib.DEFLATED, WINDOW_BITS, zdict=read_dictionary_1())
    return bytes(work.compress(data) + work.flush())


#: The counts of a report. They add up to the records read.
COUNTS: Final = ("new", "changed", "same", "older", "repeated", "before", "drafts", "refused")


@dataclass(slots=True)
class RegistryReport:
    """Counts of records by outcome, in the order of COUNTS, and the first reasons for leaving records out."""

    counts: Counter[str] = field(default_factory=Counter)
    #: Records that were refused, as "file: record N: reason".
    reasons: list[str] = field(default_factory=list)
    #: Files that were left out, with the reason.
    left_out: list[tuple[str, str]] = field(default_factory=list)
    is_continued: bool = False

    @property
    def is_useless(self) -> bool:
        """Whether records were read and all of them were refused."""
        return 0 < self.counts["read"] == self.counts["refused"]

    @property
    def lacks_targets(self) -> bool:
        """Whether the refused records are works of Crossref that do not say where their names lead."""
        return bool(self.reasons) and all(reason.endswith(NO_TARGET) for reason in self.reasons)


def count_parts(parts: Sequence[PartReport]) -> RegistryReport:
    """The report of what was read from parts. A list of states is counted, and not named."""
    report = RegistryReport()
    counts = report.counts
    counts.update(failures=0, left_out=0)
    # A large file is read in several parts, each with a number after its name.
    counts["states"] = len({part.name.partition("#")[0] for part in parts if part.is_list_of_states})
    for part in parts:
        before = part.read - part.records - part.drafts - part.refused
        counts.update(read=part.read, drafts=part.drafts, refused=part.refused, before=before, several=part.several)
        if part.failure or part.left_out:
            counts["failures"] += bool(part.failure)
            counts["left_out"] += 1
            report.left_out.append((part.name, part.failure or part.left_out))
        report.reasons += [f"{part.name}: {reason}" for reason in part.reasons]
    # Files and reasons that are named. Further ones are only counted.
    del report.reasons[20:], report.left_out[20:]
    return report


#: Rows that are written in one transaction. Other writers of the store wait for about 15 ms.
_BATCH: Final = 5_000
#: Refused records after which reading stops if no record was usable.
MAX_USELESS: Final = 100_000


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """What is imported, and how."""

    source: str
    #: The format of the files, None for that of each file.
    form: RegistryFormat | None
    #: Records with an earlier date are left out, in seconds since the epoch.
    since: int
    #: None if the files do not claim to be complete.
    missing: Missing | None
    #: Whether an import that is not finished is dropped.
    restart: bool
    #: Processes that read, and the rows of a sorted run.
    workers: int
    run_rows: int

    @property
    def options(self) -> str:
        """The options that decide what is stored, as text."""
        form = "" if self.form is None else f"--format {self.form} "
        since = f"--since {self.since} " if self.since else ""
        return f"{form}{since}{'' if self.missing is None else f'--missing {self.missing}'}".strip()


#: Shows a bar for a number of bytes or of records. None if it is not known.
ShowBar = Callable[[str, float | None, bool], AbstractContextManager[Bar]]


def import_registry(
    request: ImportRequest, store: Path, show_bar: ShowBar, *, clock: Callable[[], float]
) -> RegistryReport:
    """Import registry files into the SQLite store at a path. A repeated call continues an import that was interrupted.

    `clock` gives seconds since the epoch. Raises ConfigurationError, StoreError, and DoiProxyError for a full disk.
    """
    file = store.with_name(store.name + ".import")
    with (
        Staging(file, request.source, request.options, restart=request.restart) as staging,
        RegistryTable(store, now=clock()) as table,
    ):
        # A delta touches nearly all blocks, so their compression takes a third of its time. The first import reads for
        # longer than it writes, and stays as short as it can be.
        if table.count():
            table.compress = choose_compress()
        if not staging.is_read:
            _read(request, staging, show_bar, clock)
        report = _store(request, staging, table, show_bar)
        report.is_continued = staging.is_continued
        staging.remove()
    return report


# --- reading ------------------------------------------------------------------------------------------------------


def _read(request: ImportRequest, staging: Staging, show_bar: ShowBar, clock: Callable[[], float]) -> None:
    """Read all parts that are not staged yet."""
    staging.forget_left_out()
    before, now = staging.reports(), int(clock())
    done, options = {part.name for part in before}, ReadingOptions(request.form, request.since, now)
    # A new interpreter shares no threads, locks and descriptors with this one.
    spawn = multiprocessing.get_context("spawn")
    with (
        show_bar("reading", size_of_source(request.source), True) as bar,
        ProcessPoolExecutor(request.workers, spawn, begin_process) as pool,
    ):
        reading, waiting = _Reading(RunWriter(staging, request.run_rows, clock), bar, clock, before), _Waiting()
        try:
            for part in find_parts(request.source, now):
                if isinstance(part, LeftOut):
                    staging.note_left_out(part)
                elif part.name in done:
                    bar.advance(part.weight)
                else:
                    waiting[pool.submit(read_packed, part, options)] = part
                    # One part is ready for a process that becomes free.
                    reading.take(waiting, most=request.workers)
                if reading.is_useless:
                    # What is under way can have usable records. The names of the rest are not absent.
                    reason = f"the rest is not read: the first {MAX_USELESS} records were refused"
                    staging.note_left_out(LeftOut(request.source, reason, is_failure=True))
                    break
            reading.take(waiting, most=0)
        except KeyboardInterrupt:
            # The parts under way are waited for in any case.
            reading.take(waiting, most=0)
            raise
        except BrokenProcessPool as error:
            raise DoiProxyError(
                "A process of the import ended; free memory or disk space, and run the same command again to continue."
            ) from error
        finally:
            # What is read already is kept for the next run.
            reading.writer.write()
    staging.finish_reading()


_Waiting = dict[Future[tuple[PartReport, bytes]], Part]


class _Reading:
    """Takes what processes have read, and shows how many records in a second."""

    def __init__(self, writer: RunWriter, bar: Bar, clock: Callable[[], float], before: Sequence[PartReport]) -> None:
        """`before` was read by an earlier run of the program."""
        self.writer = writer
        self._bar = bar
        self._began = clock()
        self._records = 0
        self._refused = sum(part.refused for part in before)
        self._is_any_usable = any(part.refused < part.read for part in before)
        bar.describe(lambda: f"{self._records:,} records, {self._records / max(clock() - self._began, 1.0):,.0f}/s")

    def take(self, waiting: _Waiting, *, most: int) -> None:
        """Wait until at most so many parts are not read, and take the others."""
        while len(waiting) > most:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                part = waiting.pop(future)
                report, packed = future.result()
                self.writer.add(report, packed)
                self._records += report.read
                self._refused += report.refused
                self._is_any_usable = self._is_any_usable or report.refused < report.read
                self._bar.advance(part.weight)

    @property
    def is_useless(self) -> bool:
        """Whether MAX_USELESS records were refused before any was usable. Reading more would not help."""
        return self._refused >= MAX_USELESS and not self._is_any_usable


# --- storing ------------------------------------------------------------------------------------------------------


def _store(request: ImportRequest, staging: Staging, table: RegistryTable, show_bar: ShowBar) -> RegistryReport:
    """Write the rows into the table, from where an earlier run of the program stopped."""
    parts = staging.reports()
    report = count_parts(parts)
    last, counts = staging.progress()
    rows = _keep_newest(staging.rows(last), counts)
    with show_bar("storing", sum(part.records for part in parts), False) as bar:
        while batch := list(islice(rows, _BATCH)):
            counts.update(table.write(batch), answered=table.count_entries([row[0] for row in batch]))
            staging.note_progress(batch[-1][0], counts)
            bar.advance(len(batch))
    if request.missing is not None and not report.counts["failures"]:
        present = (key for key, *_ in staging.rows(""))
        absent = _find_absent(table, present, {agency for part in parts for agency in part.agencies})
        while group := list(islice(absent, _BATCH)):
            counts["absent"] += len(group)
            if request.missing is Missing.FORGET:
                table.forget(group)
    report.counts.update(counts)
    return report


def _keep_newest(rows: Iterator[RegistryRow], counts: Counter[str]) -> Iterator[RegistryRow]:
    """The newest row of each key. The others are counted. Of rows of one date, agency and URL decide."""
    for _, same in groupby(rows, itemgetter(0)):
        newest, *others = same
        if others:
            counts["repeated"] += len(others)
            newest = max(newest, *others)
        yield newest


def _find_absent(table: RegistryTable, present: Iterator[str], agencies: Set[str]) -> Iterator[str]:
    """The names of the store that the files do not have, although the store has them from the same agency."""
    # Both are in the order of their keys.
    key_of_files = next(present, None)
    for page in table.pages():
        for key, _, agency, _ in page:
            while key_of_files is not None and key_of_files < key:
                key_of_files = next(present, None)
            if key != key_of_files and agency in agencies:
                yield key
