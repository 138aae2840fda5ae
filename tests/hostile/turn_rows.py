"""Every endpoint at the largest inputs that the limits permit: requests whose turns tests/hostile/turns.py measures."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from doi_names.presentation import MAX_TYPED_CHARACTERS
from doi_proxy.web.request_path import MAX_REQUEST_TARGET_BYTES
from tests.hostile.records import PREFIX
from tests.hostile.turns import Exchange
from tests.hostile.upstream import ORDINARY

#: The names that the store has before the proxy starts.
STORED: Final = 5_000
STORED_PREFIX: Final = "10.7777"
TOKEN: Final = "the-token-of-an-operator"
#: Records that are just below a limit, and two that are refused.
AT_THE_LIMIT: Final = (
    *("dotted-addresses", "list-of-zeros-256k", "many-values-1000", "long-value-256k", "many-includes-256k"),
    *("many-locations-256k", "many-attributes-256k", "deep-xml-256k", "deep-json-256k", "nested-lists-256k"),
    *("linked-types-256k", "usual-locations-256k", "empty-locations-128k", "locations-with-links", "wide-networks"),
    *("wrong-networks", "templates", "entities", "list-of-zeros-1m", "many-values-1m"),
)
LANGUAGES: Final = ("en", "de", "es", "fr")
_PAGE: Final = {"Accept": "text/html"}
_OPERATOR: Final = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
_TARGET: Final = MAX_REQUEST_TARGET_BYTES - 200
_LIST_BYTES: Final = 300_000

#: Pieces of which long texts are made. Each once took a reader longest: escapes, slashes, labels, look-alikes, forms
#: that are undone, marks that are trimmed.
UNITS: Final = (
    *("/", "%25", "%20", "%C3%A9", " ", ".", "10.1000/", "10.", "1", "doi:", "doi: ", "http://", "https://doi.org/"),
    *("urn:doi:", "hdl:", "(", ")", "<", "&lt;", "&amp;", "#", "?", "=", ";", ",", "-", "_", "\\", '"', "'"),
    *("\u00ad", "\u200b", "\u2010", "\u0430", "\uff11", "\u00e9", "\U0001f600", "a@b.c", "O0", "\n", "\t", "a", "x y "),
)
BEGINNINGS: Final = ("", "10.1000/", "http:", "https://doi.org/10.1000/", "doi:", "%31%30.1000/", "see 10.1000/1 ")
ENDS: Final = ("", ".", "/", "%", " ")


def long_texts(characters: int) -> Iterator[str]:
    """Texts of so many characters, all different."""
    for unit in UNITS:
        for beginning in BEGINNINGS:
            for end in ENDS:
                room = characters - len(beginning) - len(end)
                yield beginning + (unit * (room // len(unit) + 1))[:room] + end


def name_exchanges(number: int) -> Iterator[Exchange]:
    """Requests about names. Each `number` has records of its own, which are parsed anew."""
    for largest, target, headers in (
        ("a record of 256 KiB", "", {"Accept": "application/x-bibtex"}),
        ("a record of 256 KiB, as a page", "?noredirect", _PAGE),
        ("a record of 256 KiB, 20 attributes", "?" + "&".join(["locatt=id:1"] * 20), {}),
        ("a record of 256 KiB, its locations", "?action=showurls", {}),
        ("a record of 256 KiB, its locations as a page", "?action=showurls", _PAGE),
        ("a record of 256 KiB, redirectionHeaders", "?redirectionHeaders", _PAGE),
    ):
        for record in AT_THE_LIMIT:
            yield Exchange("GET /{name}", largest, f"/{PREFIX}/{record}~{number}{target}", headers=headers)
    for record in AT_THE_LIMIT:
        yield Exchange(
            "GET /help/{name:path}", "a record of 256 KiB", f"/help/{PREFIX}/{record}~{number}", headers=_PAGE
        )
    api = "GET /api/handles/{name}"
    for largest, target, headers in (
        ("a record of 256 KiB", "", {}),
        ("a record of 256 KiB, compressed", "", {"Accept-Encoding": "gzip"}),
        ("a record of 256 KiB, pretty, 190 types", "?pretty" + "&type=URL." * 190, {}),
    ):
        for record in AT_THE_LIMIT:
            yield Exchange(api, largest, f"/api/handles/{PREFIX}/{record}~{number}{target}", headers=headers)
    for language in LANGUAGES:
        page = {**_PAGE, "Accept-Language": language}
        for record in ("linked-types-256k", "usual-locations-256k"):
            target = f"/{PREFIX}/{record}~{number}?noredirect"
            yield Exchange("GET /{name}", f"a record of 256 KiB, as a page ({language})", target, headers=page)
    long = "/" + "a%2F" * (8_100 // 2)
    for unit in ("a", "%2F", "%C3%A9", "%C2%AD", "/", "."):
        name = f"/{ORDINARY}-none/" + unit * (8_100 // max(1, unit.count("%") or 1))
        yield Exchange("GET /{name}", "a name of 8 kB that does not exist", name[:_TARGET], headers=_PAGE)
        text = ("/" + unit * _TARGET)[:_TARGET].rstrip("%CAF392")
        yield Exchange("GET /{name}", "a path of 32 kB that is not a name", text, headers=_PAGE)
    problem = {"Accept": "application/problem+json"}
    yield Exchange("GET /{name}", "a name of 8 kB, as a problem", f"/{ORDINARY}-none{long[:8_000]}", headers=problem)
    yield Exchange("GET /{name}", "200 parameters", f"/{ORDINARY}/1?" + "&".join(["a=" + "b" * 150] * 200))
    yield Exchange("GET /", "no input", "/", headers=_PAGE)
    names = ",".join(f"{ORDINARY}/" + "x" * 300 for _ in range(100))
    for headers in ({}, _PAGE):
        yield Exchange("GET /doiRA/{names}", "100 names of 300 characters", f"/doiRA/{names}", headers=headers)
        yield Exchange("GET /doiRA/{names}", "32 kB of commas", "/ra/" + "," * _TARGET, headers=headers)
        typed = "/ra/?names=" + "a," * (_TARGET // 2)
        yield Exchange("GET /doiRA/{names}", "32 kB of typed names", typed, headers=headers)
    yield Exchange("GET /openurl", "32 kB", "/openurl?id=doi:" + "10.1000/" * (_TARGET // 8), headers=_PAGE)
    yield from _forms()


def _forms() -> Iterator[Exchange]:
    form = {"Content-Type": "application/x-www-form-urlencoded", **_PAGE}
    for text in _slowest_texts(MAX_TYPED_CHARACTERS):
        body = f"hdl={quote(text)}".encode()
        yield Exchange("POST /", "a text of 4,096 characters", "/", "POST", form, body)
    yield Exchange("POST /", "a form of 64 KiB", "/", "POST", form, b"a=%C3%A9&" * (65_000 // 9))
    json_body = {**form, "Content-Type": "application/json"}
    for body in (b"[" * 65_000, b'{"hdl":"' + b"/" * 65_000 + b'"}', b'{"a":' + b"[1]," * 16_000 + b"1}"):
        yield Exchange("POST /", "a JSON body of 64 KiB", "/", "POST", json_body, body)


def _slowest_texts(characters: int) -> tuple[str, ...]:
    """The texts that the readers of names, the warnings and the suggestions take longest for."""
    pieces = ("http:" + "/" * characters, "%25" * characters, "%20" * characters, "10.1000/" * characters)
    marks = ("10.1000/" + "\u00ad" * characters, "\uff11" * characters, "(10.1000/1" + ")." * characters)
    return tuple(text[:characters].rstrip("%2") for text in pieces + marks)


def text_exchanges() -> Iterator[Exchange]:
    """Requests to the endpoints for texts and lists."""
    for text in _slowest_texts(MAX_TYPED_CHARACTERS):
        target = f"/api/parse?doi={quote(text)}"
        if len(target) < _TARGET:
            yield Exchange("GET /api/parse", "a text of 4,096 characters", target)
    for path, count in (("/api/parse", 14), ("/api/resolve", 14), ("/api/resolve?suggest=true", 2)):
        endpoint = f"POST {path.partition('?')[0]}"
        characters = MAX_TYPED_CHARACTERS if path == "/api/parse" else 60_000
        for largest, media_type, encoding, body in islice(_lists(characters), count):
            headers = {"Content-Type": media_type} | ({"Content-Encoding": encoding} if encoding else {})
            for output in ("", "?output=json", "?output=csv") if path == "/api/resolve" else ("",):
                yield Exchange(endpoint, largest, path + output, "POST", headers, body)
    yield from _extractions()


def _extractions() -> Iterator[Exchange]:
    """Texts of any length with names in them."""
    header = {"Content-Type": "text/plain"}
    for path in ("/api/extract", "/api/resolve?extract=true"):
        for text in _slowest_texts(60_000):
            endpoint = f"POST {path.partition('?')[0]}"
            yield Exchange(endpoint, "a text of 60,000 characters without a blank", path, "POST", header, text.encode())
        for piece in ("10.1000/1 ", "10.1000/", "doi:", "https://doi.org/10.1000/1\n", "\n", "a "):
            # Each turn reads some hundred characters, and a longer text has more turns.
            body = (piece * (20_000 // len(piece))).encode()
            yield Exchange(f"POST {path.partition('?')[0]}", "20 kB of names", path, "POST", header, body)


def _lists(characters: int) -> Iterator[tuple[str, str, str, bytes]]:
    texts = [text.replace("\n", " ") for text in _slowest_texts(characters)]
    texts = (texts * 20)[: _LIST_BYTES // characters]
    yield f"lines of {characters:,} characters", "text/plain", "", "\n".join(texts).encode()
    yield f"JSON strings of {characters:,} characters", "application/json", "", json.dumps(texts).encode()
    ndjson = "\n".join(map(json.dumps, texts)).encode()
    yield f"NDJSON of {characters:,} characters", "application/x-ndjson", "", ndjson
    yield "1,000 names", "text/plain", "", b"10.1000/1\n" * 1_000
    yield "1,000 names as JSON", "application/json", "", json.dumps(["10.1000/1"] * 1_000).encode()
    yield "CSV of one-letter records", "text/csv", "", b"doi\n" + b"a\n" * 1_000
    yield "CSV with 60,000 columns", "text/csv", "", b"," * 60_000 + b"doi\n" + b"," * 60_000 + b"a\n"
    yield "CSV with an open quote", "text/csv", "", b'doi\n"' + b"\n" * 60_000
    yield "empty lines", "text/plain", "", b"\n" * _LIST_BYTES
    yield "comments", "text/plain", "", b"#\n" * (_LIST_BYTES // 2)
    yield "JSON of brackets", "application/json", "", b"[" + b"[],{}," * 5_000 + b"1]"
    yield "gzip of empty lines", "text/plain", "gzip", gzip.compress(b"\n" * 1_000_000)
    yield "gzip of empty members", "text/plain", "gzip", gzip.compress(b"") * 10_000
    yield "gzip of names", "text/csv", "gzip", gzip.compress(b"doi\n" + b"10.1000/1\n" * 1_000)


def operation_exchanges() -> Iterator[Exchange]:
    """Requests for the paths of operation."""
    for path, largest in (
        *(("/healthz", "no input"), ("/readyz", "no input"), ("/robots.txt", "no input"), ("/favicon.ico", "no input")),
        *(("/metrics", "all series after these requests"), ("/status", "24 hours of history")),
        *(("/openapi.json", "no input"), ("/docs", "no input"), ("/privacy", "no input"), ("/preferences", "no input")),
    ):
        yield Exchange(f"GET {path}", largest, path)
        yield Exchange(f"GET {path}", f"{largest}, compressed", path, headers={"Accept-Encoding": "gzip"})
        for language in LANGUAGES:
            page = {**_PAGE, "Accept-Language": language}
            yield Exchange(f"GET {path}", f"{largest}, as a page ({language})", path, headers=page)
    metrics = {"Accept": "application/openmetrics-text"}
    yield Exchange("GET /metrics", "all series, as OpenMetrics", "/metrics", headers=metrics)
    yield Exchange("GET /static/{file:path}", "the style sheet", "/static/style.css")
    yield Exchange("GET /runbook/{entry}", "an entry of the runbook", "/runbook/doiproxydown", headers=_PAGE)
    form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
    yield Exchange("GET /references", "no input", "/references", headers=_PAGE)
    for largest, file in _bibliographies():
        body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + file + b"\r\n--x--"
        kind = {"Content-Type": "multipart/form-data; boundary=x", "Accept-Encoding": "gzip"}
        yield Exchange("POST /references", largest, "/references", "POST", kind, body)
    typed = b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\n' + b"<" * 4_194_000 + b"\r\n--x--"
    yield Exchange("POST /references", "4 MiB of text", "/references", "POST", kind, typed)
    yield Exchange("POST /preferences", "a form of 64 KiB", "/preferences", "POST", form, b"service=" + b"x" * 65_000)


#: The longest tag that is read.
_ATTRIBUTES: Final = b"<a " + b" ".join(b'a%d=""' % number for number in range(12_000)) + b"/>"


def _bibliographies() -> Iterator[tuple[str, bytes]]:
    """Files for /references that take long."""
    yield "4 MiB of delimiters", b"\r\n--x" * 600_000
    yield "500 entries without a DOI", b"@a{" + b"k" * 200 + b",\n" + (b"x" * 200 + b"\n@a{k,\n") * 500
    yield "2,000 references", b"".join(b"[%d] Smith, J. A title. 2020.\n\n" % number for number in range(1, 2_001))
    yield "60,000 headings", b"References\n" * 60_000
    yield "300 broken names", b"Smith 10.1000 / 1<b>&amp;\xe2\x80\x93x.;\n" * 300
    yield "19,461 lines", (b"x\n" * 37 + b"Smith 10.1000 / 1;\n\n") * 499
    yield "an entry of 19,500 lines", b"@a{k,\n" + b"x\n" * 19_000 + b"doi = {10.1000 / 1}\n}\n" * 240
    yield "500 KB of blank lines", b"\n \n" * 170_000
    yield "500 KB of words", b"10.1000/" + b"a " * 260_000
    yield "500 KB of markup", b"<" * 520_000
    for largest, element in (
        ("16 MiB of elements", b"<a/>"),
        ("paragraphs", b"<w:p/>"),
        ("text", b"x" * 400_000),
        ("attributes", _ATTRIBUTES),
        ("a long namespace", b'<a xmlns="' + b"u" * 100_000 + b'">' + b"<b/>" * 30_000 + b"</a>"),
    ):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            word = b'<w:d xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:t>'
            text = element * (1 if len(element) > 10 else 4_190_000 if largest[0] == "1" else 400_000)
            archive.writestr("word/document.xml", word + text + b"</w:t></w:d>")
        yield f"a document with {largest}", file.getvalue()
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        for number in range(1_200):
            archive.writestr(str(number), b"")
    yield "an archive of 1,200 files", file.getvalue()


def admin_exchanges() -> Iterator[Exchange]:
    """Requests to the admin API. The store has STORED names under STORED_PREFIX."""
    for path in ("/admin/openapi.json", "/admin/settings", "/admin/deny"):
        yield Exchange(f"GET {path}", "no input", path, headers=_OPERATOR)
    probed = "/.well-known/doi-proxy/probe/"
    yield Exchange(f"GET {probed}{{rest:path}}", "8 kB, without a key", probed + "x" * 8_000)
    explained = quote("10.1000/" + "\u00ad" * 2_000)
    yield Exchange("GET /admin/explain", "a name of 4 kB", f"/admin/explain?doi={explained}", headers=_OPERATOR)
    for record in ("many-values-1000", "linked-types-256k", "deep-json-256k"):
        path = f"/admin/entries?doi={PREFIX}/{record}~1"
        yield Exchange("GET /admin/entries", "a record of 256 KiB", path, headers=_OPERATOR)
    selections: dict[str, dict[str, Any]] = {
        f"{STORED:,} names, counted": {"prefix": STORED_PREFIX, "dry_run": True},
        f"{STORED:,} names, made stale": {"prefix": STORED_PREFIX, "soft": True},
        f"{STORED:,} names without an answer": {"negative": True},
        "a name of 4,096 characters": {"doi": "10.1000/" + "x" * 4_088},
    }
    for largest, selection in selections.items():
        yield _operate("/admin/purge", largest, selection)
    yield _operate("/admin/refresh", f"1,000 of {STORED:,} names", {"prefix": STORED_PREFIX, "limit": 1_000})
    yield _operate("/admin/refresh", "a record of 256 KiB", {"doi": f"{PREFIX}/many-values-1000~1"})
    yield _operate("/admin/deny", "a network", {"network": "192.0.2.0/24", "seconds": 60})
    for path in ("/admin/purge", "/admin/refresh", "/admin/deny"):
        for body in (b"[" * 16_000, b"{" + b",".join(b'"a%d":1' % at for at in range(1_600)) + b"}", b"[1," * 5_000):
            yield Exchange(f"POST {path}", "a body of 16 KiB", path, "POST", _OPERATOR, body)
    yield _operate("/admin/purge", f"{STORED:,} names", {"prefix": STORED_PREFIX})
    yield _operate("/admin/reload", "no input", {})


def _operate(path: str, largest: str, body: dict[str, Any]) -> Exchange:
    return Exchange(f"POST {path}", largest, path, "POST", _OPERATOR, json.dumps(body).encode())
