"""Reads the names of a RIS file, as reference managers export it.

RIS Format Specifications (Research Information Systems, 2001): a line is a tag of two characters, two blanks, a
hyphen, a blank, and the value. A reference begins with TY and ends with ER. DO has the DOI name.
"""

from __future__ import annotations

import re
from typing import Final

from app.features.lists.item import Item, ListItem
from app.features.lists.lines import Line, LineCutter
from app.features.lists.reference_text import read_reference, trim_url

#: A field. Some programs write fewer blanks than the specification has.
_FIELD: Final = re.compile(r"([A-Z][A-Z0-9]) {0,2}-(?: +(.*))?", re.DOTALL)
_DOI_URL: Final = re.compile(r"https?://(?:(?:dx|www)\.)?doi\.org/\S+", re.IGNORECASE)
#: The tags of a DOI name, of links, and of the two ends of a reference.
_DOI: Final = "DO"
_LINKS: Final = frozenset({"UR", "L1", "L2", "L3", "L4", "LK", "M1", "M3"})
_ENDS: Final = frozenset({"TY", "ER"})
#: Links of one reference that are remembered.
MAX_LINKS: Final = 100


class RisReader:
    """Reads the DO fields of each reference. A reference without one is searched for DOI URLs.

    A line that is too long is cut.
    """

    def __init__(self, max_line_bytes: int) -> None:
        self._lines = LineCutter(max_line_bytes)
        self._has_doi = False
        self._links: list[Item] = []

    def feed(self, data: bytes) -> list[Item]:
        """See ListReader."""
        return self._read(self._lines.feed(data))

    def end(self) -> list[Item]:
        """See ListReader."""
        return self._read(self._lines.end()) + self._finish()

    def _read(self, lines: list[Line]) -> list[Item]:
        items: list[Item] = []
        for line in lines:
            found = _FIELD.match(line.data.decode("utf-8", "replace").lstrip())
            if found is None:
                continue
            tag, value = found[1], (found[2] or "").strip()
            if tag in _ENDS:
                items += self._finish()
            elif tag == _DOI and value:
                self._has_doi = True
                items.append(read_reference(ListItem(value, line.number)))
            elif tag in _LINKS and len(self._links) < MAX_LINKS and (url := _DOI_URL.search(value)):
                self._links.append(read_reference(ListItem(trim_url(url[0]), line.number)))
        return items

    def _finish(self) -> list[Item]:
        """The links of a reference that has no DOI name of its own."""
        links = [] if self._has_doi else self._links
        self._has_doi, self._links = False, []
        return links
