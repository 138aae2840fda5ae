"""Handle values and records for tests."""

from __future__ import annotations

import json
from typing import Any, Final

from handle_protocol.value import Record, read_values

#: The Accept header of a browser.
BROWSER: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def value(index: int, type_: str, text: object, ttl: object = 86400, **more: object) -> dict[str, Any]:
    """A value as the handle API sends it, whose data are a string."""
    return {"index": index, "type": type_, "data": {"format": "string", "value": text}, "ttl": ttl, **more}


def record(*values: tuple[str, object]) -> Record:
    """A record whose values have these types and texts. The indexes begin with 1."""
    listed = [value(index, type_, text) for index, (type_, text) in enumerate(values, 1)]
    return read_values(json.dumps(listed).encode())
