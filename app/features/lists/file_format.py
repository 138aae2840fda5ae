"""The formats of lists in files, chosen by the name of the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from app.errors import UnreadableList
from app.features.gunzip import Gunzip, GzipLimits
from app.features.lists.json_lists import JsonArrayReader, JsonLinesReader
from app.features.lists.lines import LinesReader, ListReader
from app.features.lists.references import BibtexReader, RisReader
from app.features.lists.table import ColumnReader

#: The end of the name of a compressed file.
_GZIP_SUFFIX: Final = ".gz"
#: Makes the reader of each format, given the limit of a line and the column. `--format` has these names too.
READERS: Final[dict[str, Callable[[int, str | None], ListReader]]] = {
    "text": LinesReader,
    "csv": ColumnReader,
    "bibtex": BibtexReader,
    "ris": RisReader,
    "jsonl": JsonLinesReader,
    "json": JsonArrayReader,
}
_SUFFIXES: Final = {"tsv": "csv", "bib": "bibtex", "ndjson": "jsonl"} | {
    name: name for name in ("csv", "ris", "jsonl", "json")
}


def has_gzip_name(path: str) -> bool:
    """Whether the name is that of a gzip file."""
    return path.lower().endswith(_GZIP_SUFFIX)


def format_of(path: str, column: str | None = None) -> str:
    """The format by the end of a file name. Any other name is text, or CSV if a column is named."""
    _, dot, suffix = path.lower().removesuffix(_GZIP_SUFFIX).rpartition(".")
    return _SUFFIXES.get(suffix if dot else "", "text" if column is None else "csv")


def open_gunzip(max_ratio: float) -> Gunzip:
    """The decompressor of a list. It raises UnreadableList."""
    return Gunzip(GzipLimits(ratio=max_ratio), lambda reason: UnreadableList(f"The {reason}."))
