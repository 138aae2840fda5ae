"""Reads the parts of registry files, in a process of its own."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from multiprocessing import parent_process
from pathlib import Path
from threading import Thread
from typing import Final

import msgspec

from doi_proxy.features.registry import import_parts, json_values
from doi_proxy.features.registry.import_parts import MAX_RECORD_BYTES, Part
from doi_proxy.features.registry.json_values import (
    CrossrefReader,
    DataCiteReader,
    InvalidTable,
    RecordDates,
    RegistryRow,
    TableReader,
    read_table_form,
)
from doi_proxy.system.files import open_regular

#: Limit of the decompressed bytes and of the records of one part. A longer one is refused as a part.
_MAX_PART_BYTES: Final = 2 * 1024 * 1024 * 1024
_MAX_PART_RECORDS: Final = 2_000_000


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
    #: Records with further URLs, and whether the part is a list of states.
    several: int = 0
    is_list_of_states: bool = False


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """What a process needs to know: dates are in seconds since the epoch."""

    form: json_values.RegistryFormat | None
    #: Records with an earlier date are not imported.
    since: int
    #: The latest plausible date.
    now: int


def begin_process() -> None:
    """Prepare a process that reads parts."""
    # Ctrl+C reaches all processes. The first process decides when this one ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Records refer to nothing that refers back. The collector took a fifth of the time of reading.
    gc.disable()
    # If the first process is killed, this one would wait for parts for ever.
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
    os._exit(1)


class UnknownFormat(ValueError):
    """The format of a part is not known. An archive can contain files without records."""


class ListOfStates(ValueError):
    """A part has names and states, and no URLs. DataCite's archives have one for each month."""


def read_packed(part: Part, options: ReadingOptions) -> tuple[PartReport, bytes]:
    """The report of a part, and its rows as msgpack: pickle takes three times as long, and 360 bytes for each row."""
    report, rows = read_part(part, options)
    return report, msgspec.msgpack.encode(rows)


def read_part(part: Part, options: ReadingOptions) -> tuple[PartReport, list[RegistryRow]]:
    """Read one part: its report and its rows, in the order of the file. What was read before a failure counts."""
    rows: list[RegistryRow] = []
    agencies: set[str] = set()
    findings, failure, left_out, has_states = json_values.Findings(), "", "", False
    try:
        for records in _read_blocks(part, options, findings):
            rows += records if not options.since else [row for row in records if row[1] >= options.since]
            agencies.update(agency for _, _, agency, _ in records)
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


def _read_blocks(part: Part, options: ReadingOptions, findings: json_values.Findings) -> Iterator[list[RegistryRow]]:
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
            piece = file.read(min(left, import_parts.PIECE_BYTES))
            if not piece:
                raise import_parts.UnreadablePart("the file was cut while it was read; begin again")
            left -= len(piece)
            yield piece
