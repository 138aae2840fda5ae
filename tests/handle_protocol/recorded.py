"""Messages recorded at the reference handle server, if they are beside the project. They are not part of it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Final

import pytest

_FILE: Final = Path(__file__).resolve().parents[3] / "shared" / "data" / "native.jsonl"
needs_recordings = pytest.mark.skipif(not _FILE.exists(), reason="the recorded messages are not beside the project")

Row = dict[str, Any]


@functools.cache
def rows() -> tuple[Row, ...]:
    """All rows, in the order of the file."""
    return tuple(json.loads(line) for line in _FILE.read_text().splitlines()) if _FILE.exists() else ()


def row(number: str) -> Row:
    """The row with this id."""
    return next(item for item in rows() if item["id"] == number)


def messages() -> list[Row]:
    """The rows with a request or an answer of the protocol."""
    return [item for item in rows() if item["transport"] in ("tcp", "udp", "http")]
