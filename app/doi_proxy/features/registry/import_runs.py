"""Sorted runs on disk: the rows of an import on their way to the store, and the parts of the files that they hold.

A run is written beside its final name and then renamed. If the program is killed, a part is in exactly one run, or in
none and is read again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final, TypeVar

import msgspec

from doi_proxy.errors import ConfigurationError
from doi_proxy.features.registry.import_streams import DamagedData, library
from doi_proxy.features.registry.wire import RegistryRow
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
