"""Records that mean harm: every face answers, never with a 500, and nothing of theirs comes back raw.

That no header holds a line break and no body the word <script> is checked for every answer by `tests.web.proxy`.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from itertools import product
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handle_protocol.location import MAX_LOCATIONS
from tests.examples import examples
from tests.table import table
from tests.upstream.faults import FAULTS, Asked, Peer, send
from tests.values import value
from tests.web.proxy import Proxy
from tests.world.answer import Reply

pytestmark = pytest.mark.anyio

NAME: Final = "10.5555/hostile"
SCRIPT: Final = "<script>alert(1)</script>"
BREAK: Final = "a\r\nSet-Cookie: b=c\r\n\r\n<img src=x onerror=alert(1)>"
ODD: Final = "\x00\x01\x1b[31m\x7f\x85\u2028\u202e\ufeff\ufffe"
#: The questions that show something of a record.
FACES: Final[dict[str, tuple[str, str]]] = {
    "reader": (f"/{NAME}", "text/html"),
    "program": (f"/{NAME}", "application/x-bibtex"),
    "locatt": (f"/{NAME}?locatt=id:1&locatt=x", "*/*"),
    "values": (f"/{NAME}?noredirect", "text/html"),
    "showurls": (f"/{NAME}?action=showurls", "*/*"),
    "api": (f"/api/handles/{NAME}?pretty", "*/*"),
    "jsonp": (f"/api/handles/{NAME}?callback=f", "*/*"),
    "which-ra": (f"/doiRA/{NAME}", "*/*"),
    "missing": ("/10.5555/no-such-name", "text/html"),
}
#: What a resolver may say about a record that it got: an answer, or that the upstream sent none.
STATUSES: Final = {200, 301, 302, 303, 307, 308, 404, 502}
SAFE_SCHEMES: Final = ("http://", "https://", "ftp://", "mailto:")


URL = value(1, "URL", "http://example.org/")


def loc(xml: str) -> list[dict[str, Any]]:
    return [value(1000, "10320/loc", xml)]


def nested(depth: int) -> Any:
    data: Any = "end"
    for _ in range(depth):
        data = [data]
    return data


def xml_of(attributes: dict[str, str]) -> str:
    element = ET.Element("locations")
    ET.SubElement(element, "location", attributes)
    return ET.tostring(element, "unicode")


LAUGHS = (
    '<!DOCTYPE l [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    + "]><l><location href='http://a/&a9;'/></l>"
)
FIELDS = ("href", "href_template", "id", "weight", "country", "http_sc", "http_role", "score", "addresses", "rel",
          "title", "titlelang", "ctype", "media-type", "language", "anchor", "hreflang", "media")  # fmt: skip
TARGETS = ("javascript:alert(1)", "JaVaScRiPt:alert(1)", " \tjavascript:alert(1)", "java\nscript:alert(1)",
           "\x01javascript:alert(1)", "data:text/html,<b>", "vbscript:x", "file:///etc/passwd", "//evil.example/",
           "\\\\evil.example", "http:", "http://", ":", "", "https://[", "http://a b/", "http://\r\nX: y/",
           "http://e\u202evil.example/", "http://example.org/" + "x" * 1_000_000)  # fmt: skip


def every_field(text: str, **more: str) -> list[dict[str, Any]]:
    """A location with this in every attribute but those named."""
    return loc(xml_of({key: more.get(key, text) for key in FIELDS}))


def two(attributes: str, root: str = "") -> list[dict[str, Any]]:
    """A location with these attributes, and a plain one."""
    return loc(f"<l {root}><location href='http://a/' {attributes}/><location href='http://b/'/></l>")


ODD_DATA: Final[tuple[object, ...]] = (
    None,
    7,
    True,
    [],
    {},
    {"format": 7},
    {"format": "string"},
    {"format": "string", "value": {}},
    {"value": "http://a/"},
    {"format": "base64", "value": "%%%"},
    {"format": "base64", "value": 7},
    {"format": "hex", "value": "zz"},
    {"format": SCRIPT, "value": SCRIPT},
    {"format": "admin", "value": 7},
    {"format": "vlist", "value": [[], {}]},
    {"format": "site", "value": nested(400)},
    nested(400),
)
ODD_NUMBERS: Final = ("inf", "-inf", "nan", "1e400", "-1e400", "1e308", "9" * 5000, "0x10", "1_0", "٣", " ", "")
ODD_STATUSES: Final = ("0", "99", "100", "204", "304", "500", "1000", "-302", "٣٠٢", "3e2", "302&#10;", "9" * 5000)
ODD_TTLS: Final = (0, -1, 10**18, -(10**18), 1e300, 0.5, "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z")

XML_RECORDS: dict[str, list[dict[str, Any]]] = {
    "64 KiB of nested XML": loc("<a>" * 9_362 + "</a>" * 9_362),
    "64 KiB of nested locations": loc("<location href='http://a/'>" * 1_600 + "</location>" * 1_600),
    "a megabyte of XML": loc("<l>" + "<location href='http://a/'/>" * 40_000 + "</l>"),
    "10,000 locations": loc("<l>" + "<location/>" * 10_000 + "</l>"),
    "10,000 locations in several values": [
        value(n, "10320/loc", "<l>" + "<location href='http://a/' rel='x' id='1'/>" * 1_000 + "</l>") for n in range(10)
    ],
    "billion laughs": loc(LAUGHS),
    "DOCTYPE": loc("<!DOCTYPE l><l><location href='http://a/'/></l>"),
    "external entity": loc("<!DOCTYPE l [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><l><location href='&x;'/></l>"),
    "external DTD": loc("<!DOCTYPE l SYSTEM 'http://127.0.0.1:9/x'><l/>"),
    "XInclude": loc("<l xmlns:xi='http://www.w3.org/2001/XInclude'><xi:include href='/etc/passwd' parse='text'/></l>"),
    "malformed, with an end of a comment": [URL, *loc("--> <script>alert(1)</script> <!-- --- -")],
    "an include of itself": loc(f"<l include='{NAME} {NAME.upper()}'><location href='http://a/'/></l>"),
    "an include loop": loc("<l include='10.5555/loop-1'><location href='http://a/'/></l>"),
    "1,000 includes": loc(f"<l include='{' '.join(f'10.5555/none-{n}' for n in range(1000))}'/>"),
    "names that are none": two("", "include='&#x85; / 10. &lt;b&gt;' nshdl='&#x9F; /' overridePrefix='&#x85;'"),
    "a long override": two("", f"overridePrefix='10{'.1' * 4000}'"),
    "markup in every field": every_field(f"\"'><img src=x onerror=y>{SCRIPT}"),
    "line breaks in every field": every_field("a\r\nSet-Cookie: b=c"),
    "line breaks behind an address": every_field("x\r\nX: y", href="http://a/\r\nX: y"),
    "quotes in every field": every_field("\"'`<>&\\;,", href="http://a/\"'`<>&\\;,"),
    "namespaces": loc("<l xmlns:a='urn:a' a:http_sc='303'><a:location a:href='x' href='http://a/' xml:id='i'/></l>"),
    "a long title": two(f"rel='x' title='{'é' * 30_000}'"),
    "heavy weights": loc("<l>" + "<location href='http://a/' weight='1.7e308' score='1.7e308'/>" * 100 + "</l>"),
    "networks": two(f"addresses='{','.join(['0.0.0.0/0,::/0,x,/,1.2.3.4/33'] * 1000)}'"),
    "methods": two("", f"chooseby='{',weighted' * 5000}'"),
    **{f"weight {text[:20]!r}": two(f"weight='{text}' score='{text}'") for text in ODD_NUMBERS},
    **{f"http_sc {text[:20]!r}": two("", f"http_sc='{text}'") for text in ODD_STATUSES},
    **{f"target {n}": loc(xml_of({"href": one.replace("\x01", " "), "rel": "x"})) for n, one in enumerate(TARGETS)},
    "10,000 links": [URL, value(2, "10320/links", "<l>" + "<location href='http://a/' rel='x'/>" * 1_500 + "</l>")],
    "hostile links": [
        URL,
        value(
            2,
            "10320/links",
            "<l>"
            + "".join(
                f"<location href='{href}' rel='a&#10;b&quot;; c=d' title='&quot;\\&#13;&#10;é'/>"
                for href in ("javascript:x", "http://a/&gt;; rel=evil", "http://a/&#10;X: y", "", "é")
            )
            + "</l>",
        ),
    ],
}
VALUE_RECORDS: dict[str, list[dict[str, Any]]] = {
    **{f"URL {n}": [value(1, "URL", one)] for n, one in enumerate(TARGETS)},
    "NUL in every string": [value(1, "URL\x00", "http://a/\x00b"), value(2, "DESC", "\x00"), value(3, "URL", "\x00")],
    "controls in every string": [value(1, ODD, ODD), value(2, "URL", f"http://a/{ODD}"), value(3, "EMAIL", ODD)],
    "line breaks in every string": [
        value(1, "URL", f"http://a/{BREAK}", timestamp=BREAK, permissions=BREAK),
        value(2, BREAK, BREAK),
        value(3, "EMAIL", BREAK),
    ],
    "markup in every string": [
        value(1, SCRIPT, SCRIPT),
        value(2, "URL", f"http://a/{SCRIPT}"),
        value(3, "EMAIL", f"{SCRIPT}@a"),
    ],
    "values of one index": [value(1, "URL", "http://a/"), value(1, "URL", "http://b/"), value(1, "10320/loc", "<l/>")],
    "odd indexes": [value(index, "URL", "http://a/") for index in (-1, 2**31, 2**63 - 1)],
    "an index beyond 64 bits": [value(10**30, "URL", "http://a/")],
    "10,000 values": [value(n, "URL", f"http://a/{n}") for n in range(10_000)],
    "a type of a mebibyte": [value(1, "X" * 2**20, "x"), URL],
    "data of other kinds": [{"index": 1, "type": "URL", "data": data} for data in ODD_DATA],
    "locations of other kinds": [{"index": 1, "type": "10320/loc", "data": data} for data in ODD_DATA],
    **{f"ttl {ttl}": [value(1, "URL", "http://a/", ttl=ttl)] for ttl in ODD_TTLS},
    "an alias to itself": [value(1, "HS_ALIAS", NAME)],
    "an alias to a script": [value(1, "HS_ALIAS", "javascript:alert(1)")],
    "an alias to nothing": [value(1, "HS_ALIAS", "")],
    "an alias to another host": [value(1, "HS_ALIAS", "//evil.example/x")],
    "an alias to a URL": [value(1, "HS_ALIAS", "http://evil.example/x")],
    "an alias with line breaks": [value(1, "HS_ALIAS", f"10.5555/{BREAK}")],
    "an alias with a query": [value(1, "HS_ALIAS", "10.5555/a?b#c%0d%0aX: y")],
    "a long alias": [value(1, "HS_ALIAS", "10.5555/" + "x" * 100_000)],
    "an alias of another kind": [{"index": 1, "type": "HS_ALIAS", "data": data} for data in ODD_DATA],
}
RECORDS: Final = XML_RECORDS | VALUE_RECORDS


def namespace(inner: str) -> dict[str, Any]:
    return value(1, "HS_NAMESPACE", f"<n>{inner}</n>")


PREFIXES: dict[str, list[dict[str, Any]]] = {
    "garbage": [value(1, "HS_NAMESPACE", "garbage")],
    "nested": [value(1, "HS_NAMESPACE", "<a>" * 20_000)],
    "laughs": [value(1, "HS_NAMESPACE", LAUGHS)],
    "itself": [namespace(f"<locs>10.5555 {NAME}</locs>")],
    "1,000 service handles": [namespace(f"<locs>{' '.join(f'10.SERV/{n}' for n in range(1000))}</locs>")],
    "no handles": [namespace("<locs>&#x85; / &lt;b&gt; 10.</locs>"), value(2, "HS_SERV", "\x00")],
    "hostile contact": [
        value(1, "EMAIL", f'javascript:alert(1)"><img src=x>{SCRIPT}'),
        value(2, "HS_NAMESPACE", "<n/>"),
    ],
    "hostile status": [namespace("<status>inactive</status><statusmsg>&lt;img src=x onerror=y&gt;&#10;</statusmsg>")],
    "hostile agency": [value(2, "10320/ra_name", "<img src=x onerror=y>"), namespace("<locs>10.5555</locs>")],
    "other kinds": [{"index": 1, "type": "HS_NAMESPACE", "data": data} for data in ODD_DATA],
}


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy(cache_ttl_ceiling=0.0, cache_negative_ttl=0.0, cache_grace=0.0) as proxy:
        for number in range(3):
            include = f"<l include='10.5555/loop-{(number + 1) % 3} {NAME}'><location href='http://{number}/'/></l>"
            proxy.upstream.put(f"10.5555/loop-{number}", loc(include))
        yield proxy


class _Page(HTMLParser):
    """Collects what a browser would run, load or follow."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "img", "iframe", "object", "embed", "base"):
            self.bad.append(tag)
        for name, text in attrs:
            if name.startswith("on") or (name in ("href", "src", "action") and _is_unsafe(text or "")):
                self.bad.append(f"{tag} {name}={text}")


def _is_unsafe(address: str) -> bool:
    head = address.strip().lower()
    return ":" in head.partition("/")[0] and not head.startswith(SAFE_SCHEMES)


def check(got: Reply) -> None:
    assert got.status in STATUSES, (got.status, got.text[:2000])
    location = got["location"]
    assert location is None or location.startswith(SAFE_SCHEMES), location
    assert all(len(link) < 20_000 for link in got.all("link")) and sum(map(len, got.all("link"))) < 100_000
    kind = got["content-type"] or ""
    if kind.startswith("text/html"):
        page = _Page()
        page.feed(got.text)
        assert page.bad == []
    elif kind.startswith("text/xml"):
        root = ET.fromstring(got.body)
        assert root.tag == "locations" and len(root) <= 3 * MAX_LOCATIONS + 10_000
    elif kind.startswith("application/json"):
        json.loads(got.body)


# Each record meets a third of the faces, and each face a third of the records. Records of one kind follow one another.
# JSON has a script of the record as it is, and its media type is not that of a page.
@table(
    ("record", "face"),
    [
        (record, face)
        for (number, record), (place, face) in product(enumerate(RECORDS), enumerate(FACES))
        if (number + place) % 3 == 0
        if face not in ("api", "jsonp") or SCRIPT not in json.dumps(RECORDS[record])
    ],
)
async def test_a_hostile_record_is_answered_and_does_no_harm(proxy: Proxy, record: str, face: str) -> None:
    proxy.upstream.put(NAME, RECORDS[record])
    proxy.upstream.delete("10.5555")
    path, accept = FACES[face]
    check(await proxy.get(path, accept=accept))


@table("face", [face for face in FACES if face not in ("api", "jsonp")])
@table("prefix", PREFIXES)
async def test_a_hostile_prefix_record_is_answered_and_does_no_harm(proxy: Proxy, prefix: str, face: str) -> None:
    proxy.upstream.put(NAME, [URL])
    proxy.upstream.put("10.5555", PREFIXES[prefix])
    path, accept = FACES[face]
    check(await proxy.get(path, accept=accept))


@table("face", FACES)
@table(
    "values",
    [
        r'[{"index":1,"type":"URL","data":{"format":"string","value":"http://a/\ud800"}}]',
        r'[{"index":1,"type":"\udc00","data":{"format":"string","value":"x"}}]',
        r'[{"index":1,"type":"10320/loc","data":{"format":"string","value":"<l><location href=\"\ud800\"/></l>"}}]',
        '[{"index":1,"type":"X","data":' + "[" * 5000 + "]" * 5000 + "}]",
        '[{"index":1,"type":"X","data":' + '{"a":' * 5000 + "1" + "}" * 5000 + "}]",
        '[{"index":1e400,"type":"X","data":1}]',
        '[{"index":1,"type":"X","data":1e400}]',
        '[{"index":1,"type":"X","data":' + "9" * 5000 + "}]",
        '[{"index":1,"type":"X","data":NaN}]',
        '[{"index":"1","type":"X","data":1}]',
        '[{"index":1,"index":2,"type":"X","type":"URL","data":"http://a/","data":"javascript:x"}]',
        '[{"index":1,"data":1}]',
        "[null]",
        "[[]]",
        "{}",
        '"values"',
        "null",
    ],
)
async def test_json_that_means_harm_is_answered_or_told_to_be_no_answer(proxy: Proxy, values: str, face: str) -> None:
    raw = '{"responseCode":1,"handle":"' + NAME + '","values":' + values + "}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAULTS, "raw", _raw)
        proxy.upstream.fault(NAME, "raw", body=raw.encode())
        path, accept = FACES[face]
        check(await proxy.get(path, accept=accept))
        proxy.upstream.heal(NAME)


async def _raw(asked: Asked, writer: Peer, options: dict[str, Any]) -> bool:
    """The `body` as it is."""
    send(writer, 200, options["body"])
    return True


hostile = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [*TARGETS[:-1], BREAK, ODD, NAME, "<l/>", "<l><location href='http://a/'/></l>", "<", "&x;", "10.5555"]
    ),
)
types = st.one_of(
    st.sampled_from(["URL", "URL.x", "10320/loc", "10320/links", "HS_ALIAS", "HS_NAMESPACE", "HS_SERV", "EMAIL"]),
    hostile,
)


@given(st.lists(st.tuples(types, hostile), max_size=4), st.sampled_from([face for face in FACES if face != "missing"]))
@settings(max_examples=examples(3), suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_record_is_answered(proxy: Proxy, values: list[tuple[str, str]], face: str) -> None:
    proxy.upstream.put(NAME, [value(n, *one) for n, one in enumerate(values, 1)])
    proxy.upstream.put("10.5555", [value(n, *one) for n, one in enumerate(values, 1)])
    path, accept = FACES[face]
    check(await proxy.get(path, accept=accept))


@table(
    "member",
    [{"ttl": ""}, {"ttl": True}, {"ttl": "soon"}, {"timestamp": [1]}, {"permissions": 1110}, {"references": "x"}],
)
async def test_a_member_that_cannot_be_read_is_named_and_the_record_stays(proxy: Proxy, member: dict[str, Any]) -> None:
    (name,) = member
    odd = value(2, "EMAIL", "a@example.org") | member
    proxy.upstream.put(NAME, values=[URL, odd])
    got = await proxy.get(f"/{NAME}")
    assert (got.status, got["location"]) == (302, "http://example.org/")
    assert (await proxy.get(f"/api/handles/{NAME}")).json["values"] == [URL, odd]
    page = await proxy.get(f"/{NAME}?noredirect", accept="text/html")
    assert f"Not readable, so the usual value counts: {name}" in page.text
