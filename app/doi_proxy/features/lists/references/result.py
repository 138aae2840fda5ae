"""What the page says about each reference, and the text with the corrections."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from doi_names.find_names import FoundName
from doi_names.name import HandleName
from doi_names.uri import to_url
from doi_proxy.features.lists.verdict import GOOD, ListRow
from doi_proxy.list_formats.lines import NO_DOI
from doi_proxy.resolver.resolution import Tombstone

#: What is said about a reference: a verdict, or that it was corrected, or has no DOI.
State = Literal[
    "resolved", "alias", "no_target", "not_found", "not_a_doi", "unverified", "rate_limited", "corrected", "no_doi"
]
#: Characters of a reference that are shown.
_SHOWN: Final = 300
#: Characters after the line of an entry in which its DOI is searched.
_MAX_DISTANCE: Final = 4_096


@dataclass(frozen=True, slots=True)
class CheckedReference:
    """One reference: its key or "", its line, its text, its name or "", and what is said about it.

    `text` is what stands for the name. `cause` is the key of the sentence that says why, "" without one. `suggestion`
    is the name that exists in place of this one, "" without one. `around` is the reference in running text.
    """

    key: str
    line: int
    text: str
    doi: str
    state: State
    cause: str = ""
    suggestion: str = ""
    around: str = ""
    #: The title of the work that the name leads to, if it is not that of the reference.
    other_work: str = ""
    #: What the operators say about a work that was withdrawn.
    tombstone: Tombstone | None = None

    @property
    def shown(self) -> str:
        """The reference for a reader."""
        return (self.around or self.text)[:_SHOWN]

    @property
    def name(self) -> str:
        """The name that a reader can open."""
        return self.suggestion or self.doi


@dataclass(frozen=True, slots=True)
class Result:
    """The references, the corrected text, "" without a correction, and the name of its file."""

    rows: tuple[CheckedReference, ...]
    corrected: str
    file_name: str

    @property
    def good(self) -> int:
        """The references that need no work."""
        return sum(row.state in ("resolved", "alias") and not row.other_work for row in self.rows)

    @property
    def changed(self) -> int:
        """The references with another name that exists."""
        return sum(row.state == "corrected" for row in self.rows)

    @property
    def href(self) -> str:
        """The corrected text as a URL (RFC 2397): nothing is stored for the download."""
        return "data:text/plain;charset=utf-8;base64," + base64.b64encode(self.corrected.encode()).decode("ascii")


def describe(row: ListRow, found: FoundName | None) -> CheckedReference:
    """What the page says about a row. `found` is its place in a running text."""
    state: State = row.verdict.value
    suggestion, text = "", row.input if found is None else found.text
    if row.verdict in GOOD:
        if found is not None and not found.is_as_written:
            state, suggestion = "corrected", found.name.text
    elif row.reason == NO_DOI:
        state = "no_doi"
    else:
        known = [
            candidate for candidate in row.suggestions or () if candidate.exists and candidate.confidence != "doubtful"
        ]
        if known:
            state, suggestion = "corrected", known[0].doi.text
    place = row.key or "", row.line or 0
    other = row.title or "" if row.match == "different" else ""
    stone = row.judgement.tombstone if row.judgement is not None and state == "not_found" else None
    return CheckedReference(
        *place, text, row.doi or "", state, _find_cause(state, row), suggestion, str(row.echo or ""), other, stone
    )


def _find_cause(state: State, row: ListRow) -> str:
    """The key of the sentence that says why a name was not found to exist."""
    if state == "not_a_doi":
        return "not_a_doi.shape"
    if state not in ("unverified", "rate_limited"):
        return ""
    failure = None if row.judgement is None else row.judgement.failure
    return "references.too_late" if failure is None else f"failure.{failure}"


def correct(text: str, rows: Sequence[CheckedReference], places: Sequence[FoundName | None]) -> str:
    """The text with each suggestion in the place of what it corrects, "" if there is none."""
    starts = _find_lines(text)
    changes: list[tuple[int, int, str]] = []
    for row, found in zip(rows, places, strict=True):
        if row.state != "corrected":
            continue
        if found is not None:
            changes.append((found.start, found.end, row.suggestion))
        elif 0 < row.line <= len(starts):
            start = starts[row.line - 1]
            at = text.find(row.text, start, start + _MAX_DISTANCE)
            if at >= 0:
                is_url = row.text.lower().startswith("http")
                name = to_url(HandleName(row.suggestion)) if is_url else row.suggestion
                changes.append((at, at + len(row.text), name))
    pieces: list[str] = []
    done = 0
    for start, end, name in sorted(changes):
        if start >= done:
            pieces += (text[done:start], name)
            done = end
    return "".join([*pieces, text[done:]]) if pieces else ""


def _find_lines(text: str) -> list[int]:
    """Where each line begins."""
    return [0, *accumulate(len(line) + 1 for line in text.split("\n")[:-1])]
