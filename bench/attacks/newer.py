"""Uploads to /references, as an attack: odd files, forms and heads."""

from __future__ import annotations

import io
import itertools
import zipfile
from collections.abc import Iterator
from typing import Any, Final

from bench.attacks.crowd import Request, Target, attack
from bench.attacks.world import Checkout, Row, proxy, upstream
from tests.hostile.clients import head

_BOUNDARY: Final = "b0undary"
_FORM: Final = f"Content-Type: multipart/form-data; boundary={_BOUNDARY}"
_HTML: Final = "Accept: text/html"
_TEXT: Final = "Content-Type: text/plain"
_LONG: Final = 30_000
#: Odd heads that every path gets.
_HEADS: Final = (
    ("Accept-Language", f"Accept-Language: {','.join(f'a{number}-b;q=0.{number % 10}' for number in range(5_000))}"),
    ("Accept", f"Accept: {','.join(f'a{number}/b;q=0.{number % 10}' for number in range(4_000))}"),
    ("If-None-Match", "If-None-Match: " + ", ".join(f'"{number}"' for number in range(5_000))),
    ("Range", "Range: bytes=" + ",".join(f"{number}-" for number in range(5_000))),
    ("Cookie", "Cookie: " + "a=b; " * 6_000),
    ("Accept-Encoding", "Accept-Encoding: " + "gzip;q=0.1, " * 3_000),
)


def _odd(target: str, *lines: str, method: str = "GET", body: bytes = b"") -> tuple[Request, ...]:
    """Requests for a path with odd heads, methods and queries."""
    heads = tuple(Request(name, target, method, (*lines, line), body) for name, line in _HEADS)
    query = f"{target}{'&' if '?' in target else '?'}"
    return (
        *heads,
        *(Request(word, target, word, lines) for word in ("HEAD", "OPTIONS", "PUT", "DELETE", "TRACE")),
        Request("a long query", query + "a=" + "%C3%A9" * (_LONG // 6), method, lines, body),
        Request("many parameters", query + "a&" * (_LONG // 2), method, lines, body),
        Request("NUL", query + "%00", method, lines, body),
        Request("a body", target, method, (*lines, _TEXT), body or b"x" * 1_000),
    )


def references(checkout: Checkout) -> Iterator[Row]:
    """Uploads to `/references`."""
    files = {
        "a zip bomb": _docx(b"<w:t>" + b"a" * 40_000_000),
        "a zip bomb of elements": _docx(b"<w:p/>" * 3_000_000),
        "entities": _docx(b"", '<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa">' + _entities() + "]>"),
        "an external entity": _docx(b"&x;", '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
        "deep elements": _docx(b"<a>" * 900_000),
        "a zip in a zip": _docx(_docx(b"x" * 1_000_000)),
        "a zip that is cut off": _docx(b"10.1000/182" * 10_000)[:-40],
        "4 MB of BibTeX": b"@article{a, doi = {10.1000/1}}\n" * 130_000,
        "an open brace": b"@article{a, title = {" + b"{" * 4_000_000,
        "RIS without an end": b"TY  - JOUR\nDO  - 10.1000/1\n" * 140_000,
        "NUL": b"\0" * 4_000_000,
    }
    hostile = [_upload(label, data, "a.docx") for label, data in files.items()]
    many = b"".join(b'--%b\r\nContent-Disposition: form-data; name="f%d"\r\n\r\nx\r\n' % (_BOUNDARY.encode(), number)
                    for number in range(50_000))  # fmt: skip
    hostile.append(Request("50,000 parts", "/references", "POST", (_FORM,), many))
    hostile.append(Request("delimiters", "/references", "POST", (_FORM,), b"\r\n--" + _BOUNDARY.encode() * 400_000))
    hostile.append(Request("5 MB", "/references", "POST", (_FORM,), b"x" * 5_000_000))
    beginning = _upload("", b"10.1000/182\n", "a.txt").body
    yield from _everywhere(
        checkout,
        Target(
            "uploads",
            _upload("", b"10.1000/182\n10.1000/183\n", "a.txt"),
            (*hostile, *_odd("/references")),
            lambda number: _upload("", b"10.1000/%d and more words\n" % number * 300, "a.txt"),
            head("/references", _FORM, "Content-Length: 100000", method="POST") + beginning[:100],
            count=200,
        ),
    )


def _upload(label: str, data: bytes, name: str) -> Request:
    field = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    return Request(
        label, "/references", "POST", (_FORM, _HTML), field + data + b"\r\n--" + _BOUNDARY.encode() + b"--\r\n"
    )


def _docx(text: bytes, doctype: str = "") -> bytes:
    word = b'<w:d xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", doctype.encode() + word + text)
    return file.getvalue()


def _entities() -> str:
    names = "abcdefghij"
    pairs = itertools.pairwise(names)
    return "".join(f'<!ENTITY {after} "{f"&{before};" * 10}">' for before, after in pairs)


def _everywhere(checkout: Checkout, target: Target, settings: dict[str, Any] | None = None) -> Iterator[Row]:
    """The attack through each door, or through the front."""
    for door in checkout.doors:
        with upstream() as url, proxy(checkout, url, door=door, **(settings or {})) as running:
            yield from attack(checkout, running, target)
