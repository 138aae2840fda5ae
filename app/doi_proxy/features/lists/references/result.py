"""What the page says about each reference, and the text with the corrections."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Literal, get_args

from markupsafe import Markup

from doi_names.name import HandleName
from doi_names.presentation import to_url
from doi_names.suggestion import Suggestion
from doi_proxy.errors import DoiProxyError, RequestTooLarge, TooManyRequests, UnreadableList
from doi_proxy.features.lists.batch import BatchInput
from doi_proxy.features.lists.feature import TooManyBatches
from doi_proxy.features.lists.verdict import GOOD, ListRow, Verdict, read_input
from doi_proxy.features.metadata.cited import read_cited
from doi_proxy.features.metadata.match import Compared
from doi_proxy.list_formats import formats, lines
from doi_proxy.list_formats.body import cut_pieces, read_exported_entries
from doi_proxy.list_formats.docx import MAX_CHARACTERS, UnreadableDocument, read_docx
from doi_proxy.list_formats.entries import MAX_EXCERPT, NO_DOI, ListItem
from doi_proxy.list_formats.extraction import decode_text, locate_references, read_reference_items
from doi_proxy.list_formats.fair_lock import HoldTurn
from doi_proxy.resolver.resolution import Tombstone
from doi_proxy.web.look import SIGNS
from doi_proxy.web.media_types import TEXT
from doi_proxy.web.request import FormField, read_multipart


class UnreadableReferences(UnreadableList):
    """The references cannot be read."""

    def __init__(self, key: str, detail: str = "") -> None:
        super().__init__()
        self.problem = PageProblem(f"references.refused_{key}", detail=detail)


class TooManyReferences(RequestTooLarge):
    """The references are more than one page checks."""

    def __init__(self, key: str, **limits: int) -> None:
        super().__init__()
        self.problem = PageProblem(f"references.refused_{key}", limits)


@dataclass(frozen=True, slots=True)
class PageProblem:
    """The key of a sentence, the numbers in it, and what is wrong with a file, in English, or ""."""

    key: str
    limits: Mapping[str, int] = field(default_factory=dict)
    detail: str = ""


def describe_error(error: DoiProxyError | None) -> PageProblem | None:
    """What the page says about an error: one of its own, of the reader of lists, or of a client over its limit."""
    if error is None:
        return None
    if isinstance(error, UnreadableReferences | TooManyReferences):
        return error.problem
    if isinstance(error, TooManyBatches):
        return PageProblem("references.refused_busy")
    if isinstance(error, TooManyRequests):
        return PageProblem("error.too_many")
    return PageProblem("references.refused_list", detail=error.message)


#: What is said about a reference: a verdict, or that it was corrected or withdrawn, or has no DOI.
State = Literal[
    "resolved", "alias", "no_target", "not_found", "not_a_doi", "unverified", "rate_limited", "corrected", "withdrawn",
    "no_doi", "other_work", "related_work", "doubtful_work", "cited_work", "set_here",
]  # fmt: skip
#: What the states come to, in the order of the page: what has to be looked at comes first.
Group = Literal["missing", "other", "corrected", "without", "unknown", "registered"]
_GROUPS: Final[dict[State, Group]] = {
    "not_found": "missing", "not_a_doi": "missing", "withdrawn": "other", "other_work": "other",
    "related_work": "other", "doubtful_work": "other", "no_target": "other", "cited_work": "registered",
    "corrected": "corrected", "no_doi": "without", "unverified": "unknown", "rate_limited": "unknown",
    "set_here": "unknown", "resolved": "registered", "alias": "registered",
}  # fmt: skip


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
    #: The reference and the work that the name leads to. None if nothing was to be compared.
    compared: Compared | None = None
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
        # Characters of a reference that are shown.
        return text if len(text) <= 300 else f"{text[:300].rstrip()}\N{HORIZONTAL ELLIPSIS}"

    @property
    def name(self) -> str:
        """The name that a reader can open."""
        return self.suggestion or self.doi

    @property
    def searched(self) -> str:
        """What a search for a reference without a registered DOI gets, "" for others."""
        return " ".join(self.around.split())[:250] if self.state in ("no_doi", "not_found") else ""


@dataclass(frozen=True, slots=True)
class Result:
    """The references, the corrected file, b"" without a correction, and its name.

    `left_out` counts the paragraphs that were not read as references.
    """

    rows: tuple[CheckedReference, ...]
    corrected: bytes
    file_name: str
    left_out: int = 0
    #: See Bibliography.
    entries: int = 0
    column: str = ""

    def count(self, group: Group) -> int:
        """The references of a group."""
        return sum(row.group == group for row in self.rows)

    @property
    def compared(self) -> tuple[int, int, list[tuple[str, int]]]:
        """The references that were compared, those with a registered name, and why others were not."""
        all_of = [row.compared for row in self.rows if row.compared is not None]
        reasons = Counter(compared.reason for compared in all_of if compared.reason is not None)
        return len(all_of) - reasons.total(), len(all_of), [*reasons.items()]

    @property
    def groups(self) -> list[tuple[Group, str, int, list[CheckedReference]]]:
        """The groups with references, in the order of the page: each with its sign and its number."""
        found = []
        for group in get_args(Group):
            rows = [row for row in self.rows if row.group == group]
            if rows:
                found.append((group, SIGNS[group], len(rows), rows))
        return found

    @property
    def href(self) -> Markup:
        """The corrected file as a URL (RFC 2397): nothing is stored for the download. It has no sign of HTML."""
        encoded = base64.b64encode(self.corrected).decode("ascii")
        return Markup(f"data:{TEXT};charset=utf-8;base64,{encoded}")  # noqa: S704 - see above


def describe(row: ListRow, title: str, *, is_running_text: bool) -> CheckedReference:
    """What the page says about a row. `title` is that of its entry, "" without one."""
    state: State = row.verdict.value
    suggestion, found = "", row.found if is_running_text else None
    known = [candidate for candidate in row.suggestions or () if candidate.exists]
    # A name that is near may be meant and leads to another work as easily: it is offered, and never corrects a file.
    corrections = [candidate for candidate in known if candidate.rule != "nearest"]
    if row.verdict in GOOD:
        if row.match == "different":
            state = "other_work"
        elif row.judgement is not None and row.judgement.is_set_here:
            state = "set_here"
        elif row.found is not None and not row.found.is_as_written:
            state, suggestion = "corrected", row.found.name.text
        elif row.match is not None:
            state = _STATES.get(row.match, state)
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
        row.compared if row.verdict in GOOD else None, stone, others,
        None if found is None else (found.start, found.end),
    )  # fmt: skip


_STATES: Final[dict[str, State]] = {"same": "cited_work", "related": "related_work", "doubtful": "doubtful_work"}


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


@dataclass(frozen=True, slots=True)
class Correction:
    """A part of a text, and what replaces it."""

    start: int
    end: int
    text: str


def list_corrections(text: str, rows: Sequence[CheckedReference], *, has_lines: bool = True) -> list[Correction]:
    """What is replaced in a text: what a suggestion corrects, by the suggestion. In the order of the text.

    Without `has_lines`, as in JSON, the numbers of rows are not those of lines: names are searched in their order.
    """
    starts = [0, *accumulate(len(line) + 1 for line in text.split("\n")[:-1])] if has_lines else []
    corrections: list[Correction] = []
    cursor = 0
    for row in rows:
        if row.state != "corrected":
            continue
        if row.place is not None:
            corrections.append(Correction(*row.place, row.suggestion))
            continue
        start = starts[row.line - 1] if 0 < row.line <= len(starts) else cursor
        # Characters after the line of an entry in which its DOI is searched.
        at = text.find(row.text, start, start + 4_096 if has_lines else len(text))
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


#: The references of one page.
MAX_REFERENCES: Final = 2_000
#: How files begin that are not text, and the key of what the page says about each.
_OTHER_FILES: Final = (
    (re.compile(rb"\s*%PDF-"), "pdf"),
    (
        re.compile(rb"\x89PNG|\xff\xd8\xff|GIF8|II\*\0|MM\0\*|RIFF....WEBP|....ftyp(?:hei|mif)|BM.{4}\0\0", re.DOTALL),
        "picture",
    ),
    (re.compile(rb"\xd0\xcf\x11\xe0"), "old_word"),
    (re.compile(rb"\{\\rtf"), "rtf"),
    (re.compile(rb"PK\x03\x04.{26}mimetypeapplication/vnd\.oasis", re.DOTALL), "open_document"),
)


@dataclass(frozen=True, slots=True)
class Bibliography:
    """A text, its inputs with the title of each or "", and the name for a corrected file.

    The places of names that were found in running text count its characters.
    """

    text: str
    inputs: tuple[BatchInput, ...]
    titles: tuple[str, ...]
    file_name: str
    is_running_text: bool = False
    #: Paragraphs that do not look like references, and were not read.
    left_out: int = 0
    #: The entries of an export, of which each has one reference or more, and the column of a table: see ListReader.
    entries: int = 0
    column: str = ""


async def read_bibliography(sent: FormField, hold_turn: HoldTurn) -> Bibliography:
    """The references of what was sent. Raises UnreadableList and RequestTooLarge, mostly those of this feature.

    `hold_turn` is of a lock of all texts: see find_names_of.
    """
    name = sent.file_name.rpartition("/")[2]
    stem, _, suffix = name.rpartition(".")
    stem = re.sub(r"[^\w -]", "", stem)[:60] or "references"
    for begins, key in _OTHER_FILES:
        if begins.match(sent.data):
            raise UnreadableReferences(key)
    if suffix.lower() == "docx" or sent.data.startswith(b"PK\x03\x04"):
        text = await _read_document(sent.data, hold_turn)
        return await _read_text(text, hold_turn, f"{stem}-corrected.txt", is_document=True)
    text = await _decode(sent.data)
    form = formats.format_of_name(name) or formats.format_of_head(text[: formats.HEAD_CHARACTERS])
    if form is not None and form is not formats.TEXT:
        return await _read_entries(text, form, hold_turn, f"{stem}-corrected.{form.suffixes[0]}")
    return await _read_text(text, hold_turn, f"{stem}-corrected.txt", is_document=False)


async def _read_document(data: bytes, hold_turn: HoldTurn) -> str:
    try:
        return await read_docx(data, hold_turn)
    except UnreadableDocument as error:
        if error.is_spreadsheet:
            raise UnreadableReferences("spreadsheet") from error
        raise UnreadableReferences("document", error.reason) from error


async def _decode(data: bytes) -> str:
    """The text of a file, in many turns of the event loop. Raises UnreadableReferences and TooManyReferences."""
    pieces = [piece async for piece in decode_text(cut_pieces(data))]
    text = "".join(pieces).replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        raise UnreadableReferences("encoding")
    if len(text) > MAX_CHARACTERS or text.count("\n") > 60_000:
        raise TooManyReferences("long", characters=MAX_CHARACTERS, lines=60_000)
    return text


async def _read_entries(text: str, form: formats.ListFormat, hold_turn: HoldTurn, file_name: str) -> Bibliography:
    """The entries of an export, each with its title."""
    inputs: list[BatchInput] = []
    titles: list[str] = []
    entries = 0
    place: str | int | None = None
    async for item in read_exported_entries(text, form, MAX_REFERENCES + 1, hold_turn):
        _require_few(len(inputs) + 1)
        if place != (item.key or item.line):
            entries, place = entries + 1, item.key or item.line
        inputs.append(read_input(item))
        title = read_cited(item.cited).title if isinstance(item, ListItem) and item.cited else ""
        titles.append(title[:MAX_EXCERPT])
    # The first record of a table decides. A first record that is longer is not named.
    reader = form.open(lines.MAX_LINE_BYTES, None, None)
    reader.feed(text[: formats.HEAD_CHARACTERS].encode("utf-8", "replace"))
    return Bibliography(text, tuple(inputs), tuple(titles), file_name, entries=entries, column=reader.column)


async def _read_text(text: str, hold_turn: HoldTurn, file_name: str, *, is_document: bool) -> Bibliography:
    """Every name in the list of references of a text, and each reference without one, in their order."""
    inputs: list[BatchInput] = []
    located = await locate_references(text, is_document=is_document)
    async for item in read_reference_items(text, located, hold_turn):
        inputs.append(read_input(item))
        _require_few(len(inputs))
    titles = ("",) * len(inputs)
    return Bibliography(text, tuple(inputs), titles, file_name, is_running_text=True, left_out=located.left_out)


def _require_few(count: int) -> None:
    if count > MAX_REFERENCES:
        raise TooManyReferences("many", count=MAX_REFERENCES)


def read_form(content_type: str, body: bytearray) -> FormField:
    """The file of a form, else its text. Raises UnreadableReferences for another media type.

    A form in percent-encoding is refused: 4 MB of it take 700 ms.
    """
    fields = read_multipart(content_type, body)
    if fields is None:
        raise UnreadableReferences("form")
    file = fields.get("file")
    if file is not None and file.data:
        return file
    return fields.get("text", FormField(b""))


def read_typed_text(content_type: str, body: bytearray) -> str:
    """The text of a form that was refused, also of its beginning. "" if there is none, or if it is cut off."""
    typed = (read_multipart(content_type, body) or {}).get("text")
    return "" if typed is None else typed.data.decode("utf-8", "replace")
