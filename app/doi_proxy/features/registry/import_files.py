"""Imports the files of registration agencies: reads parts in several processes, sorts, and writes in key order.

Reading makes sorted runs beside the store. Then one process merges them into the table. Rows in key order fill each
page of the table once; rows in the order of the files would touch a page for each record.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.registry import import_worker
from doi_proxy.features.registry.import_job import MAX_NAMED, Job, JobFolder, with_left_out
from doi_proxy.features.registry.import_parts import LeftOut, Part, find_parts, library, size_of_source
from doi_proxy.features.registry.import_worker import ImportPool, PartReport, WorkerOptions
from doi_proxy.features.registry.json_values import NO_TARGET, RegistryFormat
from doi_proxy.features.registry.sqlite_blocks import Compress, ImportPart, RegistryRow, RegistryTable, WriteCounts
from doi_proxy.store.stored_entry import WINDOW_BITS, compress, read_dictionary_1
from doi_proxy.system.progress import Bar


class Missing(StrEnum):
    """What happens to names of the store that a complete file of their agency does not have."""

    COUNT = "count"
    FORGET = "forget"


class AbsentNames:
    """Names of the store that the files do not have, although the store has them from the same agency.

    The rows of the import and the records of the store are both in the order of their keys, so one pass is enough.
    """

    def __init__(self, table: RegistryTable, agencies: Set[str], after: str) -> None:
        self._agencies = agencies
        self._pages = table.pages(after=after)
        self._page: list[RegistryRow] = []
        self._at = 0

    def up_to(self, rows: Sequence[RegistryRow]) -> Iterator[str]:
        """The absent keys up to the last of these rows."""
        return self._find({row[0] for row in rows}, rows[-1][0])

    def rest(self) -> Iterator[str]:
        """The absent keys after all rows."""
        return self._find(frozenset(), None)

    def _find(self, present: Set[str], last: str | None) -> Iterator[str]:
        while self._at < len(self._page) or self._refill():
            key, _, agency, _ = self._page[self._at]
            if last is not None and key > last:
                return
            self._at += 1
            if agency in self._agencies and key not in present:
                yield key

    def _refill(self) -> bool:
        self._page, self._at = next((page for page in self._pages if page), []), 0
        return bool(self._page)


#: isal at this level takes a third of the time of zlib for a block, which becomes 3.5 % longer.
_LEVEL: Final = 1


def choose_compress() -> Compress:
    """What compresses the text of a block. Without isal it is what compresses all that a store holds."""
    return compress if library is zlib else _compress


def _compress(data: bytes) -> bytes:
    work = library.compressobj(_LEVEL, zlib.DEFLATED, WINDOW_BITS, zdict=read_dictionary_1())
    return bytes(work.compress(data) + work.flush())


#: The counts of a report. The first six add up to the records read.
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


def count_parts(parts: Sequence[PartReport], job: Job) -> RegistryReport:
    """The report of what was read from parts. A list of states is counted, and not named."""
    report = RegistryReport(left_out=job.named[:MAX_NAMED])
    counts = report.counts
    counts.update(failures=job.failures, left_out=job.left_out)
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
    del report.reasons[MAX_NAMED:], report.left_out[MAX_NAMED:]
    return report


#: Rows that are written in one transaction. Other writers of the store wait for about 15 ms.
_BATCH: Final = 5_000
#: Refused records after which reading stops if no record was usable.
MAX_USELESS: Final = 100_000
#: The part of an import in the store: how far the rows are written.
_STORED: Final = "stored"


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


class _Progress(msgspec.Struct):
    """How far the rows are written: the last key, and the counts so far."""

    last: str = ""
    counts: dict[str, int] = {}


def import_registry(
    request: ImportRequest, store: Path, show_bar: ShowBar, *, clock: Callable[[], float]
) -> RegistryReport:
    """Import registry files into the SQLite store at a path. A repeated call continues an import that was interrupted.

    `clock` gives seconds since the epoch. Raises ConfigurationError, StoreError, and DoiProxyError for a full disk.
    """
    with JobFolder(store.with_name(store.name + ".import")) as folder, RegistryTable(store, now=clock()) as table:
        # A delta touches nearly all blocks, so their compression takes a third of its time. The first import reads for
        # longer than it writes, and stays as short as it can be.
        if table.count():
            table.compress = choose_compress()
        job, is_continued = folder.begin(request.source, request.options, restart=request.restart)
        # An earlier import that was dropped by --restart, or whose folder was removed.
        table.forget_imports(besides=job.token)
        try:
            if not job.is_read:
                job = _read(request, folder, job, show_bar, clock)
            report = _store(request, folder, job, table, show_bar)
        except OSError as error:
            raise DoiProxyError(
                f"{folder.path}: cannot be written: {error.strerror or error}; run the same command again to continue"
            ) from error
        table.forget_imports()
        folder.remove()
    report.is_continued = is_continued
    return report


# --- reading ------------------------------------------------------------------------------------------------------


def _read(request: ImportRequest, folder: JobFolder, job: Job, show_bar: ShowBar, clock: Callable[[], float]) -> Job:
    """Read all parts that are not in a run yet."""
    job = msgspec.structs.replace(job, left_out=0, failures=0, named=[])
    before = [part for run in import_worker.open_runs(folder.path) for part in run.header.parts]
    done = {part.name for part in before}
    session, now = import_worker.next_session(folder.path), int(clock())
    options = [
        WorkerOptions(folder.path, session, worker, request.form, request.since, now, request.run_rows)
        for worker in range(request.workers)
    ]
    with ImportPool(options) as pool, show_bar("reading", size_of_source(request.source), True) as bar:
        pace = _Pace(bar, clock, before)
        try:
            for part in find_parts(request.source, now):
                if isinstance(part, LeftOut):
                    job = with_left_out(job, part)
                elif part.name in done:
                    bar.advance(part.weight)
                else:
                    pace.add(pool.submit(part))
                if pace.is_useless:
                    break
        except KeyboardInterrupt:
            # What is read already is kept for the next run.
            pace.add(pool.finish())
            raise
        pace.add(pool.finish())
    job = msgspec.structs.replace(job, is_read=True)
    folder.write(job)
    return job


class _Pace:
    """Counts the records that are read, and shows how many in a second."""

    def __init__(self, bar: Bar, clock: Callable[[], float], before: Sequence[import_worker.PartReport]) -> None:
        """`before` was read by an earlier run of the program."""
        self._bar = bar
        self._clock = clock
        self._began = clock()
        self._records = 0
        self._refused = sum(part.refused for part in before)
        self._is_any_usable = any(part.refused < part.read for part in before)
        bar.describe(lambda: f"{self._records:,} records, {self._records / max(clock() - self._began, 1.0):,.0f}/s")

    def add(self, reports: Iterator[tuple[Part, import_worker.PartReport]]) -> None:
        """Show what the processes report."""
        for part, report in reports:
            self._records += report.read
            self._refused += report.refused
            self._is_any_usable = self._is_any_usable or report.refused < report.read
            self._bar.advance(part.weight)

    @property
    def is_useless(self) -> bool:
        """Whether MAX_USELESS records were refused before any was usable. Reading more would not help."""
        return self._refused >= MAX_USELESS and not self._is_any_usable


# --- storing ------------------------------------------------------------------------------------------------------


def _store(
    request: ImportRequest, folder: JobFolder, job: Job, table: RegistryTable, show_bar: ShowBar
) -> RegistryReport:
    """Merge the runs into the table, from where an earlier run of the program stopped."""
    runs = import_worker.limit_runs(
        folder.path, import_worker.open_runs(folder.path), import_worker.next_session(folder.path)
    )
    parts = [part for run in runs for part in run.header.parts]
    report = count_parts(parts, job)
    note = table.finished_parts(job.token).get(_STORED)
    state = msgspec.json.decode(note, type=_Progress) if note else _Progress()
    absent = None
    if request.missing is not None and not report.counts["failures"]:
        agencies = {agency for part in parts for agency in part.agencies}
        absent = AbsentNames(table, agencies, state.last)
    bar_of_rows = show_bar("storing", sum(run.header.rows for run in runs), False)
    with bar_of_rows as bar:
        for rows, repeated in _batches(import_worker.merge_rows([run.blocks() for run in runs]), state.last, bar):
            # Before the rows: the state that is written with them says that these names are looked at.
            if absent is not None:
                _forget(table, state, absent.up_to(rows), request.missing)
            _write(table, job.token, state, rows, repeated, table.count_entries([row[0] for row in rows]))
            bar.advance(len(rows) + repeated)
        if absent is not None:
            _forget(table, state, absent.rest(), request.missing)
    report.counts.update(state.counts)
    return report


def _write(
    table: RegistryTable, token: str, state: _Progress, rows: Sequence[RegistryRow], repeated: int, answered: int
) -> None:
    """Write rows, and in the same transaction how far this import is. `answered` rows have an entry too."""

    def advance(counts: WriteCounts) -> str:
        total = Counter(state.counts)
        total.update(counts, repeated=repeated, answered=answered)
        state.counts, state.last = dict(total), rows[-1][0]
        return msgspec.json.encode(state).decode()

    table.write(rows, finishes=ImportPart(token, _STORED, advance))


def _batches(blocks: Iterator[list[RegistryRow]], after: str, bar: Bar) -> Iterator[tuple[list[RegistryRow], int]]:
    """The newest rows of each key after `after`, in groups for one transaction, and how many others there were."""
    waiting: list[RegistryRow] = []
    for block in blocks:
        rows = [row for row in block if row[0] > after] if block[0][0] <= after else block
        bar.advance(len(block) - len(rows))
        waiting += rows
        while len(waiting) > _BATCH:
            end = _BATCH
            # All rows of a key are in one group.
            while end < len(waiting) and waiting[end][0] == waiting[end - 1][0]:
                end += 1
            yield import_worker.keep_newest(waiting[:end])
            waiting = waiting[end:]
    if waiting:
        yield import_worker.keep_newest(waiting)


def _forget(table: RegistryTable, state: _Progress, keys: Iterator[str], missing: Missing | None) -> None:
    while group := list(islice(keys, _BATCH)):
        state.counts["absent"] = state.counts.get("absent", 0) + len(group)
        if missing is Missing.FORGET:
            table.forget(group)
