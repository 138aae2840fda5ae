"""The part of a record that a values page shows: its first values, and of each value's JSON the first items."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from handle_protocol.value import Data, HandleValue

#: Values of one page: a row takes 70 to 400 us to render, beside up to 30 ms for parsing the record.
MAX_VALUES_SHOWN: Final = 50


#: JSON of the values of one page, in bytes; it becomes up to 20 times as long in HTML.
MAX_BYTES_SHOWN: Final = 65_536


#: JSON of one value that is not a string, in bytes; larger ones are not parsed for a page.
MAX_VALUE_BYTES_SHOWN: Final = 16_384


#: Members and list items of one page, over all of its values.
MAX_MEMBERS_SHOWN: Final = 500


#: Lists and objects of one page that are parsed, over all of its values: 100 values of lists 200 deep took 60 ms.
MAX_CONTAINERS_SHOWN: Final = 2 * MAX_MEMBERS_SHOWN


#: Levels of nesting that are shown.
MAX_DEPTH_SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class Members:
    """Members of a JSON object, or items of a list with the key None. `omitted` is the number that is left out."""

    shown: tuple[tuple[str | None, Any], ...]
    omitted: int = 0

    @property
    def is_list(self) -> bool:
        """Whether they are items of a list."""
        return not self.shown or self.shown[0][0] is None


@dataclass(frozen=True, slots=True)
class ValueRow:
    """A value, and its data that the page shows. Data that is too large is left out; `omitted_bytes` is its size."""

    value: HandleValue
    data: Data
    omitted_bytes: int = 0


def rows(values: Sequence[HandleValue]) -> list[ValueRow]:
    """The first values of a record, as many as one page shows."""
    first_rows: list[ValueRow] = []
    room, containers = MAX_BYTES_SHOWN, MAX_CONTAINERS_SHOWN
    for value in values[:MAX_VALUES_SHOWN]:
        room -= min(len(value.raw), MAX_VALUE_BYTES_SHOWN)
        if room < 0:
            break
        # An upper bound of the lists and objects: brackets within strings count too.
        nested = 0 if value.text is not None else value.raw.count(b"[") + value.raw.count(b"{")
        if value.text is None and (len(value.raw) > MAX_VALUE_BYTES_SHOWN or nested > containers):
            first_rows.append(ValueRow(value, Data("unknown", None), len(value.raw)))
        else:
            containers -= nested
            first_rows.append(ValueRow(value, value.data))
    return first_rows


class Outline:
    """Cuts the JSON of values to what one page shows. Each page has one object, and its values share the limit."""

    def __init__(self) -> None:
        self._room = MAX_MEMBERS_SHOWN

    def items(self, content: Sequence[Any]) -> Members:
        """The first items of a list, unchanged."""
        shown = tuple((None, item) for item in content[: self._room])
        self._room -= len(shown)
        return Members(shown, len(content) - len(shown))

    def members(self, content: Any, depth: int = 1) -> Any:
        """Objects and lists become Members; those too deep show no member. Strings stay, other values become JSON."""
        if not isinstance(content, (dict, list)) or not content:
            return content if isinstance(content, str) else _write_json(content)
        pairs = content.items() if isinstance(content, dict) else ((None, item) for item in content)
        shown = []
        for key, inner in islice(pairs, self._room if depth <= MAX_DEPTH_SHOWN else 0):
            if self._room <= 0:
                break
            self._room -= 1
            shown.append((key, self.members(inner, depth + 1)))
        return Members(tuple(shown), len(content) - len(shown))


def _write_json(content: Any) -> str:
    try:
        return json.dumps(content)
    except ValueError:
        return "…"  # an integer with more digits than Python converts
