"""The formats of lists in files, chosen by the name of the file."""

from __future__ import annotations

from enum import Enum
from typing import Final

from app.errors import UnreadableList
from app.features.gunzip import Gunzip, GzipLimits
from app.features.lists.bibtex import BibtexReader
from app.features.lists.item import ListReader
from app.features.lists.json_lists import JsonArrayReader, JsonLinesReader
from app.features.lists.lines import LinesReader
from app.features.lists.ris import RisReader
from app.features.lists.table import TableReader

#: The end of the name of a compressed file.
_GZIP_SUFFIX: Final = ".gz"


class ListFormat(Enum):
    """The formats of a list. The values are part of the command line."""

    TEXT = "text"
    CSV = "csv"
    BIBTEX = "bibtex"
    RIS = "ris"
    JSONL = "jsonl"
    JSON = "json"


_SUFFIXES: Final = {
    ".csv": ListFormat.CSV,
    ".tsv": ListFormat.CSV,
    ".bib": ListFormat.BIBTEX,
    ".ris": ListFormat.RIS,
    ".jsonl": ListFormat.JSONL,
    ".ndjson": ListFormat.JSONL,
    ".json": ListFormat.JSON,
}


def is_gzip(name: str) -> bool:
    """Whether the name is that of a gzip file."""
    return name.lower().endswith(_GZIP_SUFFIX)


def format_of(name: str, column: str | None = None) -> ListFormat:
    """The format by the end of a file name. Any other name is text, or CSV if a column is named."""
    _, dot, suffix = name.lower().removesuffix(_GZIP_SUFFIX).rpartition(".")
    return _SUFFIXES.get(dot + suffix, ListFormat.TEXT if column is None else ListFormat.CSV)


def open_gunzip(max_ratio: float) -> Gunzip:
    """The decompressor of a list. It raises UnreadableList."""
    return Gunzip(GzipLimits(ratio=max_ratio), lambda reason: UnreadableList(f"The {reason}."))


def open_reader(form: ListFormat, max_line_bytes: int, column: str | None = None) -> ListReader:
    """The reader of a format. `column` is the column of CSV, and the member of JSON objects."""
    match form:
        case ListFormat.CSV:
            return TableReader(max_line_bytes, column)
        case ListFormat.BIBTEX:
            return BibtexReader(max_line_bytes)
        case ListFormat.RIS:
            return RisReader(max_line_bytes)
        case ListFormat.JSONL:
            return JsonLinesReader(max_line_bytes, column)
        case ListFormat.JSON:
            return JsonArrayReader(max_line_bytes, column)
        case ListFormat.TEXT:
            return LinesReader(max_line_bytes)
