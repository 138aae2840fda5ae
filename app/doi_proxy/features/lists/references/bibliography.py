"""A bibliography as the inputs of a list: an export of a reference manager, a document, or any text."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import Final

from doi_proxy.endpoints.fair_lock import HoldTurn
from doi_proxy.features.lists.batch import BatchInput
from doi_proxy.features.lists.references.errors import TooManyReferences, UnreadableReferences
from doi_proxy.features.lists.verdict import read_input
from doi_proxy.features.metadata.match import read_cited
from doi_proxy.list_formats import formats, lines
from doi_proxy.list_formats.body import read_exported_entries
from doi_proxy.list_formats.docx import MAX_CHARACTERS, UnreadableDocument, read_docx
from doi_proxy.list_formats.encodings import Utf8Stream, open_decoder
from doi_proxy.list_formats.reference_names import locate_references, read_reference_items
from doi_proxy.web.multipart import FormField

#: The references of one page.
MAX_REFERENCES: Final = 2_000
MAX_LINES: Final = 60_000
#: Characters of a text that are read in one turn of the event loop.
_BLOCK: Final = 32_768
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
    #: The .docx file that has the text, b"" if it was no document.
    document: bytes = b""


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
        read = await _read_text(text, hold_turn, f"{stem}-corrected.txt", is_document=True)
        return replace(read, document=sent.data)
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
    utf8, decoder = Utf8Stream(), open_decoder()
    pieces: list[str] = []
    for start in range(0, len(data), _BLOCK):
        pieces.append(decoder.decode(utf8.feed(data[start : start + _BLOCK])))
        await asyncio.sleep(0)
    pieces.append(decoder.decode(utf8.end(), final=True))
    text = "".join(pieces).replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        raise UnreadableReferences("encoding")
    if len(text) > MAX_CHARACTERS or text.count("\n") > MAX_LINES:
        raise TooManyReferences("long", characters=MAX_CHARACTERS, lines=MAX_LINES)
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
        cited = read_cited(item.entry) if isinstance(item, lines.ListItem) and item.entry else {}
        title = str(cited.get("title") or "").replace("{", "").replace("}", "")
        titles.append(title[: lines.MAX_EXCERPT])
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
