"""What the page says about each reference, and the text with the corrections."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

from markupsafe import Markup

from doi_names.name import HandleName
from doi_names.suggestion import Suggestion
from doi_names.uri import to_url
from doi_proxy.features.lists.verdict import GOOD, ListRow, Verdict
from doi_proxy.list_formats.docx_correction import Correction
from doi_proxy.list_formats.lines import NO_DOI
from doi_proxy.resolver.resolution import Tombstone
from doi_proxy.web.media_types import TEXT
from doi_proxy.web.outcomes import SIGNS

#: What is said about a reference: a verdict, or that it was corrected or withdrawn, or has no DOI.
State = Literal[
    "resolved", "alias", "no_target", "not_found", "not_a_doi", "unverified", "rate_limited", "corrected", "withdrawn",
    "no_doi", "other_work", "set_here",
]  # fmt: skip
#: What the states come to, in the order of the page: what has to be looked at comes first.
Group = Literal["missing", "other", "corrected", "without", "unknown", "registered"]
_GROUPS: Final[dict[State, Group]] = {
    "not_found": "missing", "not_a_doi": "missing", "withdrawn": "other", "other_work": "other", "no_target": "other",
    "corrected": "corrected", "no_doi": "without", "unverified": "unknown", "rate_limited": "unknown",
    "set_here": "unknown", "resolved": "registered", "alias": "registered",
}  # fmt: skip
GROUPS: Final[tuple[Group, ...]] = ("missing", "other", "corrected", "without", "unknown", "registered")
#: Rules of names that may be meant and lead to another work as easily: they are offered, and never correct a file.
_NOT_CORRECTIONS: Final = frozenset({"nearest"})
#: Characters of a reference that are shown, and that a search gets.
_SHOWN: Final = 300
_SEARCHED: Final = 250
#: Characters after the line of an entry in which its DOI is searched.
_MAX_DISTANCE: Final = 4_096


@dataclass(frozen=True, slots=True)
class CheckedReference:
    """One reference: its key or "", its line, its text, its name or "", and what is said about it.

    `text` is what stands for the name. `cause` is the key of the sentence that says why, "" without one. `suggestion`
    is the name that exists in place of this one, "" without one. `around` is the reference in running text, or a title.
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
    #: Registered names that may be meant, of which the reader chooses.
    others: tuple[str, ...] = ()
    #: Where the name stands in running text. None in an export.
    place: tuple[int, int] | None = None

    @property
    def group(self) -> Group:
        """What the state comes to."""
        return _GROUPS[self.state]

    @property
    def shown(self) -> str:
        """The reference for a reader."""
        text = self.around or self.text
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN].rstrip()}\N{HORIZONTAL ELLIPSIS}"

    @property
    def name(self) -> str:
        """The name that a reader can open."""
        return self.suggestion or self.doi

    @property
    def searched(self) -> str:
        """What a search for a reference without a registered DOI gets, "" for others."""
        return " ".join(self.around.split())[:_SEARCHED] if self.state in ("no_doi", "not_found") else ""


@dataclass(frozen=True, slots=True)
class Result:
    """The references, the corrected file, b"" without a correction, its name and its media type.

    `left_out` counts the paragraphs that were not read as references.
    """

    rows: tuple[CheckedReference, ...]
    corrected: bytes
    file_name: str
    media_type: str = f"{TEXT};charset=utf-8"
    left_out: int = 0
    #: See Bibliography.
    entries: int = 0
    column: str = ""

    def count(self, group: Group) -> int:
        """The references of a group."""
        return sum(row.group == group for row in self.rows)

    @property
    def groups(self) -> list[tuple[Group, str, int, list[CheckedReference]]]:
        """The groups with references, in the order of the page: each with its sign and its number."""
        found = []
        for group in GROUPS:
            rows = [row for row in self.rows if row.group == group]
            if rows:
                found.append((group, SIGNS[group], len(rows), rows))
        return found

    @property
    def href(self) -> Markup:
        """The corrected file as a URL (RFC 2397): nothing is stored for the download. It has no sign of HTML."""
        encoded = base64.b64encode(self.corrected).decode("ascii")
        return Markup(f"data:{self.media_type};base64,{encoded}")  # noqa: S704 - see above


def describe(row: ListRow, title: str, *, is_running_text: bool) -> CheckedReference:
    """What the page says about a row. `title` is that of its entry, "" without one."""
    state: State = row.verdict.value
    suggestion, found = "", row.found if is_running_text else None
    known = [candidate for candidate in row.suggestions or () if candidate.exists]
    corrections = [candidate for candidate in known if candidate.rule not in _NOT_CORRECTIONS]
    if row.verdict in GOOD:
        if row.match == "different":
            state = "other_work"
        elif row.judgement is not None and row.judgement.is_set_here:
            state = "set_here"
        elif row.found is not None and not row.found.is_as_written:
            state, suggestion = "corrected", row.found.name.text
    elif row.reason == NO_DOI:
        state = "no_doi"
    elif row.judgement is not None and row.judgement.tombstone is not None:
        state = "withdrawn"
    elif row.verdict in (Verdict.NOT_FOUND, Verdict.NOT_A_DOI) and _is_the_correction(corrections):
        state, suggestion = "corrected", corrections[0].doi.text
    others = tuple(candidate.doi.text for candidate in known if candidate.doi.text != suggestion)
    stone = row.judgement.tombstone if row.judgement is not None and state == "withdrawn" else None
    around = str(row.echo or "") if is_running_text else title
    if state == "no_doi":
        around = row.input
    return CheckedReference(
        row.key or "", row.line or 0, row.input, row.doi or "", state, _find_cause(state, row), suggestion, around,
        row.title or "" if row.match == "different" else "", stone, others,
        None if found is None else (found.start, found.end),
    )  # fmt: skip


def _is_the_correction(candidates: Sequence[Suggestion]) -> bool:
    """Whether the first candidate is the correction: it alone exists, or it undoes an error that is not doubtful."""
    return bool(candidates) and (len(candidates) == 1 or candidates[0].confidence in ("sure", "likely"))


def _find_cause(state: State, row: ListRow) -> str:
    """The key of the sentence that says why a name was not found to exist."""
    if state == "not_a_doi":
        return "not_a_doi.shape"
    if state not in ("unverified", "rate_limited"):
        return ""
    failure = None if row.judgement is None else row.judgement.failure
    return "references.too_late" if failure is None else f"failure.{failure}"


def list_corrections(text: str, rows: Sequence[CheckedReference], *, has_lines: bool = True) -> list[Correction]:
    """What is replaced in a text: what a suggestion corrects, by the suggestion. In the order of the text.

    Without `has_lines`, as in JSON, the numbers of rows are not those of lines: names are searched in their order.
    """
    starts = _find_lines(text) if has_lines else []
    corrections: list[Correction] = []
    cursor = 0
    for row in rows:
        if row.state != "corrected":
            continue
        if row.place is not None:
            corrections.append(Correction(*row.place, row.suggestion))
            continue
        start = starts[row.line - 1] if 0 < row.line <= len(starts) else cursor
        at = text.find(row.text, start, start + _MAX_DISTANCE if has_lines else len(text))
        if at >= 0:
            is_url = row.text.lower().startswith("http")
            name = to_url(HandleName(row.suggestion)) if is_url else row.suggestion
            cursor = at + len(row.text)
            corrections.append(Correction(at, cursor, name))
    corrections.sort(key=lambda change: change.start)
    apart: list[Correction] = []
    for change in corrections:
        if not apart or change.start >= apart[-1].end:
            apart.append(change)
    return apart


def correct(text: str, corrections: Sequence[Correction]) -> str:
    """The text with the corrections."""
    pieces: list[str] = []
    done = 0
    for change in corrections:
        pieces += (text[done : change.start], change.text)
        done = change.end
    return "".join([*pieces, text[done:]])


def _find_lines(text: str) -> list[int]:
    """Where each line begins."""
    return [0, *accumulate(len(line) + 1 for line in text.split("\n")[:-1])]
