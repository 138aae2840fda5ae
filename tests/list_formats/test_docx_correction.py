"""The corrected .docx: the names in its text differ, and nothing else."""

from __future__ import annotations

import asyncio
import io
import struct
import zipfile
from contextlib import nullcontext, suppress
from typing import Final, cast

import pytest

from doi_proxy.list_formats.docx import Correction, UnreadableDocument, correct_docx, read_docx
from tests.table import table

pytestmark = pytest.mark.anyio

WORD: Final = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PICTURE: Final = bytes(range(256)) * 64
#: As much of nothing takes 4 kB in the file.
BOMB: Final = b"\0" * (4 * 1024 * 1024)
NEW: Final = "10.1000/a<b>&c"


def part(body: str, name: str = "document") -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?><w:{name} xmlns:w="{WORD}">{body}</w:{name}>'


class Pipe(io.BytesIO):
    """What cannot be sought: sizes then follow the data."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation

    def tell(self) -> int:
        raise io.UnsupportedOperation


def document(
    body: str, notes: str = "", *, file: io.BytesIO | None = None, method: int = zipfile.ZIP_DEFLATED
) -> bytes:
    target = file or io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        archive.writestr("word/media/picture.png", PICTURE)
        archive.writestr("word/document.xml", part(body))
        archive.writestr("word/media/large.emf", BOMB, zipfile.ZIP_DEFLATED)
        if notes:
            archive.writestr("word/footnotes.xml", part(notes, "footnotes"))
    return target.getvalue()


def runs(*texts: str) -> str:
    return f"<w:p>{''.join(f'<w:r><w:rPr/><w:t>{text}</w:t></w:r>' for text in texts)}</w:p>"


async def corrected(data: bytes, *wrong: str) -> bytes | None:
    text = await read_docx(data, nullcontext)
    places = [(text.index(name), text.index(name) + len(name)) for name in wrong]
    loop = asyncio.get_running_loop()
    began = loop.time()
    changed = await correct_docx(data, [Correction(start, end, NEW) for start, end in places], nullcontext)
    # It lets others run, and waits for nothing.
    assert loop.time() == began
    return changed


def raw_files(data: bytes) -> dict[str, bytes]:
    """The bytes of each file of an archive as they are stored."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        infos = archive.infolist()
    return {info.filename: data[info.header_offset :][: 30 + len(info.filename) + info.compress_size] for info in infos}


@table(
    ("body", "wrong", "expected"),
    [
        (runs("Smith. 10.1000/x. 2020"), "10.1000/x", runs("Smith. 10.1000/a&lt;b&gt;&amp;c. 2020")),
        (runs("é 10.10", "00/", "x after"), "10.1000/x", runs("é 10.1000/a&lt;b&gt;&amp;c", "", " after")),
        (runs("10.1000/x&lt;y&#62;z"), "10.1000/x<y>z", runs("10.1000/a&lt;b&gt;&amp;c")),
        (
            "<w:p><w:r><w:t>10.1000/</w:t><w:br/><w:t>x</w:t></w:r></w:p>",
            "10.1000/\vx",
            "<w:p><w:r><w:t>10.1000/a&lt;b&gt;&amp;c</w:t><w:br/><w:t></w:t></w:r></w:p>",
        ),
    ],
)
async def test_only_the_text_of_the_runs_differs(body: str, wrong: str, expected: str) -> None:
    for data in (document(body), document(body, method=zipfile.ZIP_STORED), document(body, file=Pipe())):
        changed = await corrected(data, wrong)
        assert changed is not None
        before, after = raw_files(data), raw_files(changed)
        assert list(before) == list(after)
        assert {name for name in before if before[name] != after[name]} == {"word/document.xml"}
        with zipfile.ZipFile(io.BytesIO(changed)) as archive:
            assert archive.read("word/document.xml").decode() == part(expected)
            assert archive.read("word/media/picture.png") == PICTURE


async def test_names_of_the_text_and_of_its_notes_are_corrected_together() -> None:
    data = document(runs("10.1000/one and 10.1000/two") + runs("10.1000/three"), runs("see 10.1000/four"))
    changed = cast(bytes, await corrected(data, "10.1000/one", "10.1000/two", "10.1000/three", "10.1000/four"))
    assert await read_docx(changed, nullcontext) == f"{NEW} and {NEW}\n{NEW}\n\fsee {NEW}\n"
    assert raw_files(data)["word/media/large.emf"] == raw_files(changed)["word/media/large.emf"]


async def test_what_is_not_text_of_a_run_is_not_changed() -> None:
    field = "<w:p><w:fldSimple w:instr='HYPERLINK \"https://doi.org/10.1000/x\"'><w:r><w:t>link</w:t></w:r></w:fldSimple></w:p>"
    assert await corrected(document(field), "10.1000/x") is None
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("word/document.xml", part(runs("10.1000/x")).replace("UTF-8", "UTF-16").encode("utf-16"))
    assert await corrected(file.getvalue(), "10.1000/x") is None


async def test_an_archive_that_is_not_plain_is_left_alone() -> None:
    data = document(runs("10.1000/x"))
    _, at = struct.unpack("<LL", data[-10:-2])
    # The picture of the directory is where the text is. The other archive has something before its first file.
    second = data.index(b"PK\x01\x02", at + 4)
    for odd in (data[: at + 42] + data[second + 42 : second + 46] + data[at + 46 :], b"#!" + data):
        # Newer patches of Python do not read files that overlap, so there is no text to correct.
        with suppress(UnreadableDocument):
            assert await corrected(odd, "10.1000/x") is None
