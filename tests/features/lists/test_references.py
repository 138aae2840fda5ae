"""`/references`: a bibliography in, verdicts and a corrected file out."""

from __future__ import annotations

import base64
import html
import io
import re
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.features.lists.answer import BATCHES
from doi_proxy.features.lists.references import page
from doi_proxy.features.lists.references.result import CheckedReference, correct, list_corrections, read_typed_text
from doi_proxy.rationing import SharedPlaces
from tests.constants import MAX_OPEN
from tests.table import table
from tests.web.proxy import Proxy
from tests.web.test_pages import Page
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

PATH = "/references"
FORM = "multipart/form-data; boundary=xyz"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
RELATIONSHIPS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
TEXT = """Smith J (2020) A title. doi:10.1000/182.
Jones K, without one
Doe L https://doi.org/10.10O0/182 and 10.1000/none
"""
BIBTEX = """@article{smith,
  doi = {10.1000/182.},
  note = {10.1000/182. stays}
}
@misc{jones, title = {Without}}
@misc{doe, url = {https://doi.org/10.1000/182}}
"""


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as started:
        started.upstream.put("10.1000/182", url="https://example.org/")
        yield started


def form(data: bytes | str, file_name: str = "", text: str = "") -> bytes:
    content = data.encode() if isinstance(data, str) else data
    parts = [
        b'--xyz\r\nContent-Disposition: form-data; name="text"\r\n\r\n' + text.encode(),
        f'\r\n--xyz\r\nContent-Disposition: form-data; name="file"; filename="{file_name}"\r\n'.encode()
        + b"Content-Type: application/octet-stream\r\n\r\n" + content,
        b"\r\n--xyz--\r\n",
    ]  # fmt: skip
    return b"".join(parts)


async def send(proxy: Proxy, data: bytes | str, file_name: str = "", **headers: str) -> Reply:
    return await proxy.post(PATH, form(data, file_name), content_type=FORM, **headers)


def results(got: Reply) -> list[tuple[str, str, str]]:
    """The key and text, the line and the words of each row without its sign, in the order of the lines."""
    return sorted(((text, line, words[2:]) for text, line, words in shown_rows(got)), key=lambda row: int(row[1]))


def shown_rows(got: Reply) -> list[tuple[str, str, str]]:
    """The same with the signs, in the order of the page."""
    assert got.status == 200, got.text
    cells = re.findall(r'<td role="cell" data-label="[^"]*">(.*?)</td>', got.text, re.DOTALL)
    words = [" ".join(html.unescape(re.sub(r"<[^>]*>", " ", cell)).split()) for cell in cells]
    return [(words[at], words[at + 1], words[at + 2]) for at in range(0, len(words), 3)]


def corrected(got: Reply) -> tuple[str, str]:
    found = re.search(r'download="([^"]*)" href="data:text/plain;charset=utf-8;base64,([^"]*)"', got.text)
    return (found[1], base64.b64decode(found[2]).decode()) if found else ("", "")


def document(
    body: str, *, head: str = "", method: int = zipfile.ZIP_DEFLATED, name: str = "word/document.xml"
) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, f'<?xml version="1.0"?>{head}<w:document xmlns:w="{WORD}">{body}</w:document>')
    return file.getvalue()


def many_parts() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(10_000):
            archive.writestr(f"word/{number}", "")
    return file.getvalue()


def in_encoding(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("word/document.xml", f'<?xml version="1.0" encoding="{name}"?><a/>')
    return file.getvalue()


def paragraphs(*texts: str) -> str:
    return "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in texts)


async def test_the_form_is_a_page_without_a_script(proxy: Proxy) -> None:
    got = await proxy.get(PATH)
    assert (got.status, got["cache-control"]) == (200, "no-store")
    assert "<script" not in got.text and 'enctype="multipart/form-data"' in got.text
    assert (await proxy.head(PATH)).status == 200
    assert Page((await proxy.get("/")).text).links[PATH] == "Check my references"


async def test_a_text_is_checked_and_corrected(proxy: Proxy) -> None:
    got = await send(proxy, TEXT, "refs.txt")
    assert got["cache-control"] == "no-store"
    assert [(line, words) for _, line, words in results(got)] == [
        ("1", "Registered 10.1000/182"),
        ("2", "No DOI Search for this reference: Crossref DataCite"),
        ("3", "Not registered 10.1000/none Search for this reference: Crossref DataCite"),
        ("3", "Corrected: this DOI is registered 10.1000/182"),
    ]
    assert results(got)[1][0] == "Jones K, without one"
    assert corrected(got) == ("refs-corrected.txt", TEXT.replace("10.10O0", "10.1000"))
    pasted = await proxy.post(PATH, form("", "", TEXT), content_type=FORM)
    assert results(pasted) == results(got)


async def test_a_blank_line_separates_references_of_several_lines(proxy: Proxy) -> None:
    got = await send(proxy, "Smith\n  A title\n  10.1000/\n  182\n\nJones\n  nothing\n")
    assert [line for _, line, _ in results(got)] == ["3", "6"]
    assert results(got)[1][2] == "No DOI Search for this reference: Crossref DataCite"
    got = await send(proxy, "\nJones\n  nothing\n\nSmith\n  10.1000/182\n")
    assert [line for _, line, _ in results(got)] == ["2", "6"]


async def test_entries_of_bibtex_and_ris_have_their_keys(proxy: Proxy) -> None:
    got = await send(proxy, BIBTEX, "my refs.bib")
    assert [(text.split()[0], words.split(":")[0]) for text, _, words in results(got)] == [
        ("smith", "Corrected"), ("jones", "No DOI Search for this reference"), ("doe", "Registered 10.1000/182"),
    ]  # fmt: skip
    expected = BIBTEX.replace("{10.1000/182.}", "{10.1000/182}")
    assert corrected(got) == ("my refs-corrected.bib", expected)
    ris = "TY  - JOUR\r\nUR  - https://doi.org/10.1000/182.\r\nER  - \r\n"
    [row] = results(await send(proxy, "TY  - JOUR\nTI  - A title\nER  - \n", "x.ris"))
    assert row == ("1 A title", "1", "No DOI Search for this reference: Crossref DataCite")
    assert results(await send(proxy, ris, "x.ris"))[0][2] == "Registered 10.1000/182"


async def test_the_paragraphs_of_a_document_are_references(proxy: Proxy) -> None:
    body = (
        paragraphs("Smith 10.1000/182", "Jones") + "<w:p><w:r><w:t>10.1000</w:t></w:r><w:r><w:t>/182</w:t></w:r></w:p>"
    )
    got = await send(proxy, document(body), "refs.docx")
    assert [words for _, _, words in results(got)] == [
        "Registered 10.1000/182", "No DOI Search for this reference: Crossref DataCite", "Registered 10.1000/182",
    ]  # fmt: skip


async def test_the_page_counts_the_paragraphs_that_were_not_read_as_references(proxy: Proxy) -> None:
    got = await send(proxy, "A paragraph.\n" * 60 + "Smith (2020) 10.1000/182\n")
    assert len(results(got)) == 1
    assert "were not read as references: 60." in got.text
    assert "were not read" not in (await send(proxy, "A paragraph.\nSmith (2020) 10.1000/182\n")).text


def linked(body: str, relationships: str) -> bytes:
    """A document with links, whose text is `body`."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "word/document.xml", f'<w:document xmlns:w="{WORD}" xmlns:r="{RELATIONSHIPS}">{body}</w:document>'
        )
        archive.writestr(
            "word/_rels/document.xml.rels", f'<Relationships xmlns="{PACKAGE}">{relationships}</Relationships>'
        )
    return file.getvalue()


def link(identifier: str, text: str) -> str:
    return f'<w:p><w:hyperlink r:id="{identifier}"><w:r><w:t>{text}</w:t></w:r></w:hyperlink></w:p>'


def relationship(identifier: str, target: str) -> str:
    return f'<Relationship Id="{identifier}" Target="{target}" TargetMode="External"/>'


async def test_the_address_of_a_link_is_read_if_its_text_has_no_name(proxy: Proxy) -> None:
    targets = relationship("a", "https://doi.org/10.1000/182") + relationship("b", "https://example.org/")
    body = link("a", "Smith 2020") + link("a", "10.1000/182") + link("b", "Jones") + link("none", "Poe")
    got = await send(proxy, linked(body, targets), "refs.docx")
    assert [words for _, _, words in results(got)] == [
        "Registered 10.1000/182", "Registered 10.1000/182", "No DOI Search for this reference: Crossref DataCite",
        "No DOI Search for this reference: Crossref DataCite",
    ]  # fmt: skip


_MANY_LINKS = "".join(relationship(str(number), f"https://doi.org/10.1000/{number}") for number in range(5_001))
_ENTITIES = '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'


@table(
    ("data", "status", "reason"),
    [
        (document(paragraphs("&b;"), head=_ENTITIES), 400, "document type declaration"),
        (document("<w:x/>" * 3_000_000), 400, "too large when it is unpacked"),
        (document("<w:x>" * 150_000), 400, "nested too deeply"),
        (linked("", "<x>" * 150_000), 400, "nested too deeply"),
        (linked("", _MANY_LINKS), 400, "too many links"),
        (linked(link("a", "x") * 1_100, relationship("a", "10." + "x" * 2_000)), 400, "its text is too long"),
        (document("", name="xl/workbook.xml"), 400, "This is a spreadsheet. Save it as CSV"),
        (document(f'<w:x a="{"x" * 200_000}"/>'), 400, "a tag or a comment that is too long"),
        (document(f"<!--{'x' * 200_000}-->"), 400, "a tag or a comment that is too long"),
        (document("<w:x/>" * 200_000), 400, "too large when it is unpacked"),
        (in_encoding("no-such-encoding"), 400, "its encoding is not known"),
        (in_encoding("rot13"), 400, "its encoding is not known"),
        (document(paragraphs("x" * 2_200_000), method=zipfile.ZIP_STORED), 400, "its text is too long"),
        (document("", method=zipfile.ZIP_BZIP2), 400, "unusual way"),
        (document("", name="other.xml"), 400, "no word/document.xml"),
        (document("<w:p>"), 400, "not well-formed"),
        (document("")[:-1], 400, "not a whole one"),
        (document("")[:-22] + b"PK\x05\x06" + b"\xff" * 16 + b"\0\0", 400, "too many parts"),
        (b"PK\x03\x04" + b"x" * 100, 400, "not a ZIP archive"),
        (b"abc\0\0d", 400, "The file is not text."),
        (b"%PDF-1.7", 400, "A PDF cannot be read. Copy its list"),
        (b"\x89PNG\r\n", 400, "A picture cannot be read."),
        (b"\xd0\xcf\x11\xe0", 400, "Save it as .docx."),
        (b"{\\rtf1", 400, "Rich text (.rtf) cannot be read."),
        ("10.1000/182\n" * 2_001, 413, "more than 2000 references"),
        ("@misc{a, doi={10.1000/182}}\n" * 2_001, 413, "more than 2000"),
        ("x" * 2_200_000, 413, "2097152 characters"),
        (b"x" * (4 * 1024 * 1024 + 1), 413, "4194304 bytes"),
    ],
)
async def test_what_is_too_large_or_damaged_is_refused(
    proxy: Proxy, data: bytes | str, status: int, reason: str
) -> None:
    got = await send(proxy, data, "a.docx" if isinstance(data, bytes) and data[:2] == b"PK" else "")
    assert (got.status, got["cache-control"]) == (status, "no-store")
    assert reason in got.text and "Traceback" not in got.text


async def test_a_file_that_is_named_a_document_is_read_as_one(proxy: Proxy) -> None:
    assert "not a ZIP archive" in (await send(proxy, "10.1000/182", "a.DOCX")).text


@table(
    ("content_type", "body"),
    [
        ("text/plain", b"10.1000/182"),
        ("application/x-www-form-urlencoded", b"text=10.1000/182"),
        ("multipart/form-data", b""),
    ],
)
async def test_another_media_type_is_refused(proxy: Proxy, content_type: str, body: bytes) -> None:
    assert (await proxy.post(PATH, body, content_type=content_type)).status == 400


async def test_an_empty_form_has_no_references(proxy: Proxy) -> None:
    for body in (b"", b"--xyz--", form(""), b"--xyz\r\n\r\n", form("\n" * 5_000), form(" \t" * 5_000)):
        got = await proxy.post(PATH, body, content_type=FORM)
        assert (got.status, results(got)) == (200, []) and "The text has no references." in got.text


async def test_what_could_not_be_verified_is_not_missing(proxy: Proxy) -> None:
    proxy.upstream.fault("10.1000/none", "status", status=503)
    [row] = results(await send(proxy, "10.1000/none", accept_language="en"))
    assert row[2] == "Could not be checked now 10.1000/none The registry refused to answer."


async def test_a_name_that_an_operator_has_set_is_not_called_registered(tmp_path: Path) -> None:
    file = tmp_path / "records.toml"
    file.write_text('[[record]]\ndoi = "10.1000/here1"\ntarget = "https://library.example/"\n', encoding="utf-8")
    async with Proxy(local_records=str(file)) as proxy:
        page = await send(proxy, "A title. 10.1000/here1", accept_language="en")
    [row] = results(page)
    assert row[2].startswith("Set by the operators of this resolver; the registry was not queried 10.1000/here1")


async def test_the_reasons_of_a_page_are_in_its_language(tmp_path: Path) -> None:
    file = tmp_path / "records.toml"
    file.write_text(
        '[[record]]\ndoi = "10.1000/gone"\ntombstone = { reason = "At her request.", date = 2026-03-01 }\n',
        encoding="utf-8",
    )
    bibliography = "@misc{a, doi={10.1000/gone}}\n@misc{b, doi={10.1000}}\n@misc{c, url={urn:isbn:1}, doi={10.1000/}}"
    async with Proxy(local_records=str(file)) as proxy:
        rows = results(await send(proxy, bibliography, "a.bib", accept_language="fr"))
    assert [words for _, _, words in rows] == [
        "Œuvre retirée 10.1000/gone Selon les responsables de ce résolveur, cette œuvre a été retirée le "
        "1er mars 2026. At her request.",
        "Ce n’est pas un DOI Un DOI commence par 10., un nombre et une barre oblique, comme dans 10.1000/182.",
        "Ce n’est pas un DOI Un DOI commence par 10., un nombre et une barre oblique, comme dans 10.1000/182.",
    ]


@table(
    ("data", "words"),
    [
        (b"%PDF-1.4", "Un PDF ne peut pas être lu."),
        ("10.1000/182\n" * 2_001, "La liste a plus de 2000 références."),
        ("x" * 2_200_000, "Le texte a plus de 2097152 caractères ou de 60000 lignes."),
        (b"x" * (4 * 1024 * 1024 + 1), "Le formulaire dépasse 4194304 octets."),
    ],
)
async def test_a_refusal_is_in_the_language_of_the_reader(proxy: Proxy, data: bytes | str, words: str) -> None:
    got = await send(proxy, data, accept_language="fr")
    assert words in html.unescape(got.text) and 'lang="en"' not in got.text


async def test_details_of_a_file_are_marked_as_english(proxy: Proxy) -> None:
    got = await send(proxy, document("<w:p>"), "a.docx", accept_language="fr")
    assert "Ce fichier .docx est illisible." in got.text
    assert '<bdi lang="en">its XML is not well-formed</bdi>' in got.text


async def test_markup_is_text(proxy: Proxy) -> None:
    got = await send(proxy, "<script>alert(1)</script> 10.1000/<b>x")
    assert "<script" not in got.text and "<b>" not in got.text


def typed(got: Reply) -> str:
    """The text in the field, as a browser reads it."""
    found = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", got.text, re.DOTALL)
    return html.unescape(found[1]) if found else ""


@table(
    ("text", "file"),
    [
        ("10.1000/182 <b> & \n" * 2_001, b""),
        ("x" * 2_200_000, b""),
        ("10.1000/182", b"x" * (4 * 1024 * 1024)),
        ("10.1000/182", b"%PDF-1.4"),
    ],
)
async def test_a_refused_form_keeps_the_text(proxy: Proxy, text: str, file: bytes) -> None:
    got = await proxy.post(PATH, form(file, "a.txt", text), content_type=FORM)
    assert (got.status in (400, 413), got["cache-control"]) == (True, "no-store")
    assert typed(got) == text


def test_only_the_line_of_a_reference_is_corrected() -> None:
    lines = ["10.1/x"] * 12
    rows = [CheckedReference("", line, "10.1/x", "10.1/x", "corrected", suggestion="10.1/y") for line in (1, 12)]
    text = "\n".join(lines)
    assert correct(text, list_corrections(text, rows)).split("\n") == ["10.1/y", *lines[1:-1], "10.1/y"]


def test_a_text_that_is_cut_off_is_not_returned() -> None:
    whole = form("10.1000/183", "", TEXT)
    assert read_typed_text(FORM, bytearray(whole)) == read_typed_text(FORM, bytearray(whole[:-20])) == TEXT
    assert read_typed_text(FORM, bytearray(whole[:100])) == read_typed_text("text/plain", bytearray(whole)) == ""


async def test_a_client_over_its_limit_gets_its_text_and_the_time_to_wait() -> None:
    async with Proxy(client_rate=0.1, client_burst=1) as limited:
        await limited.get(PATH)
        got = await limited.post(PATH, form("", "", TEXT), content_type=FORM)
        assert (got.status, got["cache-control"], got["retry-after"]) == (429, "no-store", "10")
        assert typed(got) == TEXT and "try again in about 10 seconds" in got.text
        shown = await limited.get(PATH)
        assert (shown.status, shown["retry-after"]) == (429, "10")
        assert limited.upstream.queries() == 0
        limited.clock.advance(10)
        assert (await limited.post(PATH, form("", "", TEXT), content_type=FORM)).status == 200


async def test_a_form_without_a_place_among_the_lists_keeps_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    enter = SharedPlaces.enter

    def refuse_lists(places: SharedPlaces[Any], client: str | None, place: Any) -> bool:
        return places.most not in (3, 6) and enter(places, client, place)

    monkeypatch.setattr(SharedPlaces, "enter", refuse_lists)
    async with Proxy(**{MAX_OPEN: 3}) as full:
        got = await full.post(PATH, form("", "", TEXT), content_type=FORM)
        assert (got.status, got["retry-after"], typed(got)) == (429, "10", TEXT)


async def test_a_form_that_waits_too_long_for_its_turn_to_be_read_keeps_its_text(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "READ_TIMEOUT", 0.0)
    got = await proxy.post(PATH, form("", "", TEXT), content_type=FORM)
    assert (got.status, got["retry-after"], typed(got)) == (429, "10", TEXT)
    assert got["ratelimit-policy"] == f'"{BATCHES}";q=1;w=10'
    assert "try again in about 10 seconds" in got.text and proxy.upstream.queries() == 0


async def test_the_time_to_read_a_form_counts_for_its_answers(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "CHECK_TIMEOUT", 0.0)
    got = await proxy.post(PATH, form("10.1000/182\n", "a.txt"), content_type=FORM)
    assert got.status == 200 and "No answer arrived in time. Check again." in got.text


def field(code: str, text: str) -> str:
    """A field as Word writes it: its code, and what is shown."""
    return (
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
        f"<w:r><w:instrText>{code}</w:instrText></w:r>"
        '<w:r><w:fldChar w:fldCharType="separate"/></w:r>'
        f"<w:r><w:t>{text}</w:t></w:r>"
        '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )


async def test_the_code_of_a_field_is_read_if_its_text_has_no_name(proxy: Proxy) -> None:
    code = ' HYPERLINK "https://doi.org/10.1000/182" '
    simple = code.replace('"', "&quot;")
    body = (
        f"<w:p>{field(code, 'Smith 2020')}</w:p>"
        f'<w:p><w:fldSimple w:instr="{simple}"><w:r><w:t>Jones 2020</w:t></w:r></w:fldSimple></w:p>'
        f"<w:p>{field(' PAGE ', '3')}</w:p>"
    )
    got = await send(proxy, document(body), "refs.docx")
    assert [words.partition(" Search")[0] for _, _, words in results(got)] == [
        "Registered 10.1000/182", "Registered 10.1000/182", "No DOI",
    ]  # fmt: skip


async def test_of_a_thesis_only_the_list_after_its_heading_is_read(proxy: Proxy) -> None:
    chapter = [f"In {1900 + number}, it was shown (10.1000/{number}) that." for number in range(400)]
    cited = [f"Author {number} (2020). A title. https://doi.org/10.1000/182" for number in range(19)]
    book = "Doe, J. (1999). A book."
    body = paragraphs("My thesis", "References", *chapter, "7 References", *cited, book, "Appendix A", "Nothing 2020")
    got = await send(proxy, document(body), "thesis.docx")
    rows = results(got)
    assert len(rows) == 20 and next(row[0] for row in shown_rows(got)) == book
    assert [words for _, _, words in rows].count("Registered 10.1000/182") == 19
    assert '<li class="is-registered"><strong>19</strong> registered</li>' in got.text
    assert '<li class="is-without"><strong>1</strong> without a DOI</li>' in got.text


async def test_problems_come_first_and_the_numbers_add_up(proxy: Proxy) -> None:
    proxy.upstream.fault("10.1000/fault1", "status", status=503)
    got = await send(proxy, f"{TEXT}Roe https://doi.org/10.1000/182\nPoe 10.1000/fault1\n", "refs.txt")
    assert [words[0] for _, _, words in shown_rows(got)] == ["✗", "→", "–", "?", "✓", "✓"]
    numbers = re.findall(r'<li class="is-\w+"><strong>(\d+)</strong> ([^<]*)</li>', got.text)
    assert numbers == [
        ("2", "registered"), ("1", "corrected"), ("1", "not registered"), ("1", "without a DOI"), ("1", "not checked"),
    ]  # fmt: skip


async def test_a_file_in_another_encoding_is_read(proxy: Proxy) -> None:
    text = "@misc{a, author = {Müller}, doi = {10.1000/182}}\n"
    for encoding in ("latin-1", "utf-16", "utf-16-le", "utf-8-sig"):
        [row] = results(await send(proxy, text.encode(encoding), "a.bib"))
        assert row[2] == "Registered 10.1000/182", encoding


async def test_a_title_stands_for_an_entry_and_a_search_for_a_missing_name(proxy: Proxy) -> None:
    bibliography = (
        "@misc{a, title = {A {Good} Title}, doi = {10.1000/182}}\n@misc{b, title = {Another}, doi={10.1000/0}}\n"
    )
    got = await send(proxy, bibliography, "a.bib")
    assert [text for text, _, _ in results(got)] == ["a A Good Title", "b Another"]
    assert 'href="https://search.crossref.org/search/works?q=Another&amp;from_ui=yes"' in got.text


async def test_a_long_list_is_sent_with_its_progress() -> None:
    names = [f"10.1000/new{number}" for number in range(300)]
    async with Proxy(upstream_rate=20, upstream_burst=20) as slow:
        got = await slow.post(PATH, form("\n".join(names), "a.txt"), content_type=FORM)
    progress = re.findall(r'<p role="status">Checked: (\d+) of 300</p>', got.text)
    assert got.status == 200 and len(progress) > 2
    assert [int(done) for done in progress] == sorted(map(int, progress))
    assert len(results(got)) == 300 and "content-length" not in [name for name, _ in got.fields]
    assert got.text.count("<h1>") == 1 and got.text.rstrip().endswith("</html>")


async def test_a_reference_without_a_doi_is_searched_where_the_institution_says(tmp_path: Path) -> None:
    searches = """
[search_links]
"Our catalogue" = "https://library.example.edu/search?q={text}&tab=all"
"Our link server" = "https://library.example.edu/find?doi={doi}"
"""
    (tmp_path / "branding.toml").write_text(searches, encoding="utf-8")
    async with Proxy(branding_folder=tmp_path) as proxy:
        got = await send(proxy, "Smith & Sons (2020) A title.")
        missing = await proxy.get("/10.1000/a%26b", accept="text/html")
    found = re.findall(r'href="(https://library[^"]*)"', got.text)
    assert [html.unescape(link) for link in found] == [
        "https://library.example.edu/search?q=Smith%20%26%20Sons%20%282020%29%20A%20title.&tab=all"
    ]
    assert [html.unescape(link) for link in re.findall(r'href="(https://library[^"]*)"', missing.text)] == [
        "https://library.example.edu/search?q=10.1000%2Fa%26b&tab=all",
        "https://library.example.edu/find?doi=10.1000%2Fa%26b",
    ]
