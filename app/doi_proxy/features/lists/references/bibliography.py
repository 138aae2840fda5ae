"""A bibliography as the inputs of a list: BibTeX, RIS, a Word document, or text with one reference a line."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

from doi_names.find_names import FoundName
from doi_proxy.endpoints.fair_lock import HoldTurn
from doi_proxy.features.lists.batch import BatchInput
from doi_proxy.features.lists.references.docx import read_docx
from doi_proxy.features.lists.references.errors import TooManyReferences, UnreadableReferences
from doi_proxy.features.lists.references.form import SentBibliography
from doi_proxy.features.lists.verdict import read_input
from doi_proxy.list_formats.body import BodyFormat, ListLimits, read_list_body
from doi_proxy.list_formats.extraction import find_names_of
from doi_proxy.list_formats.lines import MAX_ENTRY_CHARACTERS, MAX_EXCERPT, NO_DOI, ListItem, UnreadableItem
from doi_proxy.web.media_types import BIBTEX, RIS

#: The references of one page.
MAX_REFERENCES: Final = 300
#: Characters of a bibliography: 300 references with abstracts have about this many.
MAX_CHARACTERS: Final = 512 * 1024
#: A correction finds its line in one turn of the event loop. 400,000 lines took 80 ms, 50,000 up to 23 ms.
MAX_LINES: Final = 20_000
#: A longer text in UTF-8 has too many characters in any case. To decode 4 MiB takes milliseconds.
_MAX_BYTES: Final = 5 * MAX_CHARACTERS
_FORMATS: Final = ((re.compile(r"\s*@\s*\w+\s*[{(]"), BIBTEX, "bib"), (re.compile(r"\s*TY {0,2}- "), RIS, "ris"))
#: A blank line between references: then the lines of each belong together.
_BLANK_LINE: Final = re.compile(r"\n\s*\n")
#: References that are found in one turn of the event loop: an empty line takes 2 microseconds.
_BLOCKS_A_TURN: Final = 256
#: Characters that are searched in one turn of the event loop.
_BLOCK: Final = 32_768
_WITHOUT_DOI: Final = "This reference has no DOI."


@dataclass(frozen=True, slots=True)
class Bibliography:
    """A text, its inputs, the place of each in a running text, and the name for a corrected file."""

    text: str
    inputs: tuple[BatchInput, ...]
    places: tuple[FoundName | None, ...]
    file_name: str

    @property
    def is_running_text(self) -> bool:
        """Whether the inputs are names as they are."""
        return any(self.places)


async def read_bibliography(
    sent: SentBibliography, hold_turn: HoldTurn, *, keeps_entries: bool = False
) -> Bibliography:
    """The references of what was sent. Raises UnreadableList and RequestTooLarge, mostly those of this feature.

    `hold_turn` is of a lock of all texts: see find_names_of. With `keeps_entries`, inputs have the text of their
    reference.
    """
    stem, _, suffix = sent.file_name.rpartition("/")[2].rpartition(".")
    if suffix.lower() == "docx" or sent.data.startswith(b"PK\x03\x04"):
        text, suffix = await read_docx(sent.data, MAX_CHARACTERS), "txt"
    elif len(sent.data) > _MAX_BYTES:
        raise _too_long()
    else:
        try:
            text = sent.data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            raise UnreadableReferences("encoding") from error
    if len(text) > MAX_CHARACTERS or text.count("\n") > MAX_LINES:
        raise _too_long()
    stem = re.sub(r"[^\w -]", "", stem)[:60] or "references"
    for begins, media_type, ending in _FORMATS:
        if begins.match(text):
            items = await _read_entries(text, BodyFormat(media_type, False, None, keeps_entries=keeps_entries))
            return Bibliography(text, items, (None,) * len(items), f"{stem}-corrected.{ending}")
    inputs, places = await _read_references(text, hold_turn)
    return Bibliography(text, inputs, places, f"{stem}-corrected.txt")


def _too_long() -> TooManyReferences:
    return TooManyReferences("long", characters=MAX_CHARACTERS, lines=MAX_LINES)


async def _read_entries(text: str, form: BodyFormat) -> tuple[BatchInput, ...]:
    limits = ListLimits(names=MAX_REFERENCES)
    return tuple([read_input(item) async for item in read_list_body(_cut(text), form, limits)])


async def _cut(text: str) -> AsyncIterator[bytes]:
    for start in range(0, len(text), _BLOCK):
        yield text[start : start + _BLOCK].encode("utf-8", "replace")


async def _whole(text: str) -> AsyncIterator[str]:
    yield text


async def _read_references(
    text: str, hold_turn: HoldTurn
) -> tuple[tuple[BatchInput, ...], tuple[FoundName | None, ...]]:
    """Every name in a text, and each reference without one, in the order of the text."""
    names: list[FoundName] = []
    async for found in find_names_of(_whole(text), hold_turn):
        names.append(found)
        _require_few(len(names))
    inputs: list[tuple[BatchInput, FoundName | None]] = []
    waiting = iter(names)
    following = next(waiting, None)
    line = 1
    for number, (start, end) in enumerate(_find_blocks(text)):
        if number % _BLOCKS_A_TURN == 0:
            await asyncio.sleep(0)
        has_name, block = False, text[start:end].strip()
        while following is not None and following.start < end:
            at = line + text.count("\n", start, following.start)
            item = ListItem(following.name.text, at, None, block[:MAX_EXCERPT], block[:MAX_ENTRY_CHARACTERS])
            inputs.append((item, following))
            has_name, following = True, next(waiting, None)
        # A name can begin in one block and end in the next.
        if block and not has_name and not (names and _covers(inputs, start)):
            at = line + text.count("\n", start, start + len(text[start:end]) - len(text[start:end].lstrip()))
            inputs.append((read_input(UnreadableItem(block[:MAX_EXCERPT], at, _WITHOUT_DOI, None, None, NO_DOI)), None))
        _require_few(len(inputs))
        line += text.count("\n", start, end)
    return tuple(item for item, _ in inputs), tuple(place for _, place in inputs)


def _covers(inputs: list[tuple[BatchInput, FoundName | None]], start: int) -> bool:
    """Whether the last name reaches behind the beginning of a block."""
    place = inputs[-1][1] if inputs else None
    return place is not None and place.end > start


def _find_blocks(text: str) -> Iterator[tuple[int, int]]:
    """The places of the references: lines, or what blank lines separate."""
    pattern = _BLANK_LINE if _BLANK_LINE.search(text.strip()) else re.compile("\n")
    done = 0
    for found in pattern.finditer(text):
        yield done, found.end()
        done = found.end()
    yield done, len(text)


def _require_few(count: int) -> None:
    if count > MAX_REFERENCES:
        raise TooManyReferences("many", count=MAX_REFERENCES)
