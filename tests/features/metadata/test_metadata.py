"""What a work is, on the page of a record and beside references, and what an agency can do to both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from doi_names.name import HandleName
from doi_proxy.features.assistants.tools import OwnNames
from doi_proxy.features.metadata.cited import read_cited
from doi_proxy.features.metadata.client import MetadataClient, ServerFailure
from doi_proxy.features.metadata.match import Compared, match
from doi_proxy.features.metadata.work import MAX_TITLE, Work, read_work
from doi_proxy.features.metadata.works import HOST_FAILURES
from doi_proxy.networks import AllowedAddresses
from doi_proxy.upstream.source import Priority
from tests.certificates import self_signed
from tests.fake_upstream import FakeUpstream
from tests.features.assistants.test_tools import running as assistants
from tests.features.lists.test_references import FORM, form
from tests.features.metadata.agency import CSL, TITLE, Agency, answer, item, open_agency, put_prefix
from tests.table import table
from tests.values import BROWSER, value
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

PENDING: Final = "Title and author of the work are not known here yet."
PAGE_TIMEOUT: Final = "doi_proxy.features.metadata.works.PAGE_TIMEOUT"
ON: Final[dict[str, Any]] = {"metadata": True, "upstream_private_servers": True}


@asynccontextmanager
async def proxies(**settings: Any) -> AsyncIterator[tuple[Proxy, Agency]]:
    """A proxy that fetches metadata, and the agency of 10.5555."""
    async with open_agency() as agency, Proxy(**{**ON, **settings}) as proxy:
        put_prefix(proxy.upstream, agency.url)
        proxy.upstream.put("10.5555/a", url="https://publisher.example/a")
        yield proxy, agency
        agency.drop()


async def record_page(proxy: Proxy, name: str = "10.5555/a") -> str:
    got = await proxy.get(f"/{name}?noredirect", accept=BROWSER)
    assert got.status == 200
    return got.text


async def test_the_page_of_a_record_has_title_author_and_year() -> None:
    async with proxies() as (proxy, agency):
        page = await record_page(proxy)
        assert TITLE in page and "Einstein" in page and "1905" in page
        assert await record_page(proxy) == page
        [head] = agency.requests
        assert head.startswith(b"GET /10.5555%2Fa HTTP/1.1\r\n") and f"Accept: {CSL}\r\n".encode() in head
        assert b"doi-proxy/" in head and b"mailto:library@example.org" in head


@pytest.mark.parametrize(
    "settings", [{"metadata": "off"}, {"mode": "sealed"}, {"privacy_level": 3}, {"upstream_contact": None}]
)
async def test_nothing_is_fetched_if_it_is_off(settings: dict[str, Any]) -> None:
    async with open_agency() as agency, Proxy(**{**ON, **settings}) as proxy:
        put_prefix(proxy.upstream, agency.url)
        proxy.upstream.put("10.5555/a", url="https://publisher.example/a")
        assert 'id="work"' not in (await proxy.get("/10.5555/a?noredirect", accept=BROWSER)).text
        assert agency.requests == []
        assert proxy.upstream.queries("10.SERV/A") == 0


async def test_a_redirect_and_a_program_fetch_nothing() -> None:
    async with proxies() as (proxy, agency):
        assert (await proxy.get("/10.5555/a", accept=BROWSER)).status == 302
        assert (await proxy.get("/api/handles/10.5555/a", accept="*/*")).status == 200
        assert (await proxy.get("/10.5555/a?noredirect", accept=BROWSER, cache_control="only-if-cached")).status == 200
        assert agency.requests == []


async def test_a_page_does_not_wait_for_a_slow_server_and_a_later_one_has_the_title(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PAGE_TIMEOUT, 0.01)
    async with proxies() as (proxy, agency):
        agency.free.clear()
        page = await proxy.get("/10.5555/a?noredirect", accept=BROWSER)
        assert TITLE not in page.text and PENDING in page.text
        # A cache that kept it would hide the title from the next reader.
        assert page["cache-control"] == "public, max-age=1"
        monkeypatch.setattr(PAGE_TIMEOUT, 60.0)
        agency.free.set()
        page = await proxy.get("/10.5555/a?noredirect", accept=BROWSER)
        assert TITLE in page.text and PENDING not in page.text
        assert page["cache-control"] == "public, max-age=300"
        assert len(agency.requests) == 1


async def test_the_first_page_waits_as_long_as_an_agency_usually_takes() -> None:
    async with proxies() as (proxy, agency):
        agency.free.clear()
        asyncio.get_running_loop().call_later(1.5, agency.free.set)
        assert TITLE in await record_page(proxy)


async def test_a_work_without_metadata_is_not_announced() -> None:
    async with proxies() as (proxy, agency):
        agency.reply = answer(b"", status="404 Not Found")
        assert PENDING not in await record_page(proxy)


BAD: Final = {
    "nothing": b"",
    "no HTTP": b"\x00\xff" * 100,
    "half a head": b"HTTP/1.1 200 OK\r\nContent-",
    "a body that ends early": answer(item()).replace(b"Content-Length: ", b"Content-Length: 9"),
    "no JSON": answer(b"<html>"),
    "half an item": answer(item()[:-5]),
    "not UTF-8": answer(b'{"title": "\xff\xfe"}'),
    "a list": answer(b"[" + item() + b"]"),
    "deep": answer(b'{"title": ' + b"[" * 100_000),
    "deep and whole": answer(b'{"title": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deep inside what is skipped": answer(b'{"x": ' + b"[" * 100_000),
    "many members": answer(b"{" + b",".join(b'"%d":{}' % number for number in range(20_000)) + b"}"),
    "a long number": answer(b'{"title": ' + b"9" * 200_000 + b"}"),
    "no title": answer(b'{"author": [], "issued": 3}'),
    "title null": answer(item(None)),
    "title an object": answer(item({"a": 1})),
    "title empty": answer(item(" \n ")),
    "another media type": answer(item(), fields="Content-Type: text/html\r\n"),
    "no media type": answer(item(), fields=""),
    "a content coding": answer(item(), fields=f"Content-Type: {CSL}\r\nContent-Encoding: gzip\r\n"),
    "too large": answer(b'{"x": "' + b"x" * 300_000 + b'", ' + item()[1:]),
    "404": answer(item(), status="404 Not Found"),
    "500": answer(item(), status="500 Oops"),
    "many fields": answer(item(), fields="".join(f"X-{number}: {'x' * 100}\r\n" for number in range(2_000))),
}


@table("reply", BAD.values(), ids=BAD)
async def test_a_bad_answer_is_a_page_without_title(reply: bytes) -> None:
    async with proxies() as (proxy, agency):
        agency.reply = reply
        page = await record_page(proxy)
        assert TITLE not in page and 'id="work"' not in page and "publisher.example" in page
        await record_page(proxy)
        assert len(agency.requests) == 1, "a failure is not tried again at once"


LOCATIONS: Final = (
    "",
    "/",
    "http://",
    "file:///etc/passwd",
    "ftp://127.0.0.1/",
    "http://user:password@127.0.0.1/",
    "http://[::1/",
    "http://127.1/",
    "http://2130706433/",
    "\\\\host\\",
    "http://" + "x" * 300 + "/",
)


@table("location", LOCATIONS)
async def test_a_bad_redirect_ends_the_fetch(location: str) -> None:
    async with proxies() as (proxy, agency):
        agency.reply = answer(b"", status="302 Found", fields=f"Location: {location}\r\n")
        assert 'id="work"' not in await record_page(proxy)
        assert 1 <= len(agency.requests) <= 4


async def test_a_redirect_to_another_server_is_followed() -> None:
    async with proxies() as (proxy, first), open_agency() as second:
        first.reply = answer(b"", status="303 See Other", fields=f"Location: {second.url}/x\r\n")
        assert TITLE in await record_page(proxy)
        second.drop()


@table("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "10.0.0.1", "169.254.169.254"])
async def test_no_private_address_is_queried_unless_it_is_allowed(host: str) -> None:
    async with proxies(upstream_private_servers=False) as (proxy, agency):
        put_prefix(proxy.upstream, f"http://{host}:{agency.port}")
        assert 'id="work"' not in await record_page(proxy)
        assert agency.requests == []


@table(
    ("host", "requests"),
    [
        ("agency.example", 1),
        ("127.0.0.1", 0), ("localhost", 0), ("localhost.", 0), ("www.LOCALHOST", 0), ("127.1", 0), ("0x7f000001", 0),
        ("2130706433", 0), ("0x7f.1", 0), ("0177.0.0.01", 0), ("10.0.0.1.", 0), ("[::1]", 0),
    ],
)  # fmt: skip
async def test_an_egress_proxy_gets_no_private_address(
    host: str, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_agency() as egress:
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with proxies(upstream_private_servers=False) as (proxy, _):
            put_prefix(proxy.upstream, f"http://{host}")
            monkeypatch.setenv("no_proxy", "")
            monkeypatch.setenv("http_proxy", egress.url)
            await record_page(proxy)
            assert len(egress.requests) == requests
        egress.drop()


async def test_a_record_cannot_name_a_metadata_server_of_its_own() -> None:
    async with proxies() as (proxy, agency):
        location = f'<locations><location http_role="conneg" href="{agency.url}/own"/></locations>'
        proxy.upstream.put("10.7777", [value(20, "HS_NAMESPACE", "<HS_NAMESPACE/>")])
        proxy.upstream.put("10.7777/a", [value(1, "URL", "https://a.example/"), value(2, "10320/loc", location)])
        assert 'id="work"' not in await record_page(proxy, "10.7777/a")
        assert agency.requests == []


async def test_a_host_gets_four_fetches_at_a_time_and_each_reader_has_the_work() -> None:
    async with proxies() as (proxy, agency):
        agency.free.clear()
        names = [f"10.5555/{number}" for number in range(20)]
        for name in names:
            proxy.upstream.put(name, url="https://publisher.example/")
        pages = [asyncio.create_task(record_page(proxy, name)) for name in names]
        await asyncio.sleep(1.0)
        assert len(agency.requests) == 4
        agency.free.set()
        assert all(TITLE in page for page in await asyncio.gather(*pages))
        assert len(agency.requests) == 20


async def test_an_agency_that_does_not_answer_has_a_bounded_number_of_pages_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PAGE_TIMEOUT, 0.001)
    monkeypatch.setattr("doi_proxy.features.metadata.client.FETCH_TIMEOUT", 60.0)
    async with proxies() as (proxy, agency):
        agency.free.clear()
        proxy.upstream.put("10.5555/more", url="https://publisher.example/")
        for number in range(256):
            proxy.upstream.put(f"10.5555/{number}", url="https://publisher.example/")
            await record_page(proxy, f"10.5555/{number}")
        monkeypatch.setattr(PAGE_TIMEOUT, 60.0)
        assert PENDING in await record_page(proxy, "10.5555/more")


async def test_a_host_that_fails_is_left_alone() -> None:
    async with proxies() as (proxy, agency):
        agency.reply = answer(b"", status="503 Busy")
        for number in range(HOST_FAILURES + 3):
            proxy.upstream.put(f"10.5555/{number}", url="https://publisher.example/")
            await record_page(proxy, f"10.5555/{number}")
        assert len(agency.requests) == HOST_FAILURES


#: All members of an item that are read.
WHOLE: Final = {
    "title": ["RETRACTED: A short history of<i>SHELX</i>"], "subtitle": ["Part"], "type": "journal-article",
    "author": [{"family": "Aa", "given": "B."}, {"literal": "A Group"}], "issued": {"date-parts": [["2007"]]},
    "container-title": ["Acta"], "volume": 64, "issue": "1-2", "page": "112–122", "relation": {"is-correction-of": []},
}  # fmt: skip
ITEMS: Final[list[tuple[bytes, Work | None]]] = [
    (
        json.dumps(WHOLE).encode(),
        Work(
            "A short history of SHELX",
            ("Aa", "A Group"),
            2007,
            "Part",
            "Acta",
            "64",
            "1-2",
            "112",
            "122",
            "journal-article",
            is_notice=True,
        ),
    ),
    (b'{"title": "T", "article-number": "e12", "editor": [{"family": "E"}]}', Work("T", ("E",), page="e12")),
    (item(), Work(TITLE, ("Einstein",), 1905)),
    (item(["First", "second"]), Work("First", ("Einstein",), 1905)),
    (item("A <i>Drosophila</i> &amp; B&lt;sub&gt;2&lt;/sub&gt;"), Work("A Drosophila & B2", ("Einstein",), 1905)),
    (item("two\r\n lines\u202e"), Work("two lines", ("Einstein",), 1905)),
    (item("x < y and y > z"), Work("x < y and y > z", ("Einstein",), 1905)),
    (item("t" * 9_000), Work("t" * (MAX_TITLE - 1) + "…", ("Einstein",), 1905)),
    (item(year="1905"), Work(TITLE, ("Einstein",), 1905)),
    (item(year=True), Work(TITLE, ("Einstein",))),
    (item(year=-3), Work(TITLE, ("Einstein",))),
    (item(year=[[1]]), Work(TITLE, ("Einstein",))),
    (item(family=7), Work(TITLE, (), 1905)),
    (b'{"title": "T", "author": [{"literal": "A Group"}]}', Work("T", ("A Group",), is_group=True)),
    (b'{"title": "T", "author": {"name": "N"}, "issued": {"date-parts": []}}', Work("T", ("N",), is_group=True)),
    (b'{"title": "T", "author": "x", "issued": {"raw": "2020"}}', Work("T")),
    (b'{"title": "T", "title": "U"}', Work("U")),
    (b'{"title": "RETRACTED: "}', None),
]


@pytest.mark.parametrize(("data", "work"), ITEMS)
def test_an_item_is_read(data: bytes, work: Work | None) -> None:
    assert read_work(data) == work


def entry(title: str, name: str = "10.5555/a", author: str = "Einstein, A", year: int = 1905) -> str:
    """A reference in BibTeX."""
    return f"@article{{k,\n title = {{{title}}},\n author = {{{author}}},\n year = {year},\n doi = {{{name}}}\n}}\n"


OTHER: Final = "A survey of neural machine translation"
BIBTEX: Final = "application/x-bibtex"
RIS: Final = "application/x-research-info-systems"


async def rows_of(proxy: Proxy, body: str, media_type: str = BIBTEX, query: str = "match=true") -> list[dict[str, Any]]:
    got = await proxy.post(f"/api/resolve?{query}&output=json", body, content_type=media_type)
    assert got.status == 200, got.text
    rows: list[dict[str, Any]] = got.json
    return rows


async def test_rows_say_whether_a_reference_is_about_the_work() -> None:
    async with proxies() as (proxy, _):
        missing = entry(OTHER, "10.5555/none", "Jones", 2020)
        body = entry(TITLE) + entry(OTHER, author="Jones, K", year=2020) + entry(OTHER) + missing
        rows = await rows_of(proxy, body)
        assert [(row["match"], row["title"]) for row in rows] == [
            ("same", TITLE), ("different", TITLE), ("doubtful", TITLE), ("unknown", None),
        ]  # fmt: skip
        assert [row["verdict"] for row in rows] == ["resolved", "resolved", "resolved", "not_found"]
        assert "match" not in (await rows_of(proxy, body, query="suggest=true"))[0]


async def test_a_reference_in_ris_is_compared_wherever_its_doi_stands() -> None:
    async with proxies() as (proxy, _):
        fields = [f"TI  - {OTHER}", "AU  - Jones, K.", "PY  - 2020", "DO  - 10.5555/a"]
        for order in (fields, fields[::-1]):
            [row] = await rows_of(proxy, "\n".join(["TY  - JOUR", *order, "ER  - "]), RIS)
            assert (row["match"], row["line"], row["key"]) == ("different", 1 + order.index(fields[3]) + 1, "1")


async def test_columns_and_members_with_these_names_are_compared() -> None:
    cited = {"title": OTHER, "author": [{"family": "Jones", "given": "K"}, "Smith"], "year": 2020}
    same = {"doi": "10.5555/a", "Title": TITLE}
    expected = ["different", "same", "unknown"]
    lists = {
        "application/json": json.dumps([{"doi": "10.5555/a", **cited}, same, "10.5555/a"]),
        "application/x-ndjson": "\n".join(map(json.dumps, [{"doi": "10.5555/a", **cited}, same, {"doi": "10.5555/a"}])),
        "text/csv": f'Year,DOI,TITLE,author\n2020,10.5555/a,{OTHER},"Jones, K"\n,10.5555/a,{TITLE}\n,10.5555/a\n',
    }
    async with proxies() as (proxy, _):
        for media_type, body in lists.items():
            rows = await rows_of(proxy, body, media_type)
            assert [row["match"] for row in rows] == expected, media_type
        hostile = {"doi": "10.5555/a", "title": [["x"]] * 99, "author": {"family": {"family": 1}}, "year": {}}
        [row] = await rows_of(proxy, json.dumps([hostile]), "application/json")
        assert row["match"] == "doubtful"


async def test_a_reference_with_many_names_keeps_its_order() -> None:
    async with proxies() as (proxy, _):
        body = "TY  - JOUR\n" + "DO  - 10.5555/a\n" * 300 + f"TI  - {TITLE}\nER  - \n"
        rows = await rows_of(proxy, body, RIS)
        assert [row["line"] for row in rows] == [*range(2, 302)]
        assert [row["match"] for row in rows] == ["unknown"] * 300, "each hundred has what stands before its end"


async def test_metadata_that_cannot_be_fetched_say_nothing_about_a_doi() -> None:
    async with proxies() as (proxy, agency):
        agency.reply = answer(b"", status="503 Busy")
        [row] = await rows_of(proxy, entry(OTHER, author="Jones", year=2020))
        assert (row["verdict"], row["match"], row["title"], row["message"]) == ("resolved", "unknown", None, None)


async def test_rows_say_why_nothing_was_compared() -> None:
    async with Proxy() as proxy:
        proxy.upstream.put("10.5555/a", url="https://publisher.example/a")
        [row] = await rows_of(proxy, entry(TITLE))
        assert (row["match"], row["why"]) == ("unknown", "Not compared: no works are looked up.")
    async with proxies() as (proxy, agency):
        [row] = await rows_of(proxy, "@misc{k, doi = {10.5555/a}}\n")
        assert row["why"] == "Not compared: there is no reference with a name that leads somewhere."
        [row] = await rows_of(proxy, entry(TITLE), query="match=true&only=cached")
        assert (row["match"], row["why"]) == ("unknown", "Not compared: no works are looked up.")
        assert not agency.requests
        got = await proxy.post("/api/resolve?match=true&extract=true", "10.5555/a", content_type="text/plain")
        assert got.status == 400 and "leave out `extract`" in got.json["detail"]
        agency.reply = answer(b"{}")
        [row] = await rows_of(proxy, entry(TITLE))
        assert (row["verdict"], row["why"]) == (
            "resolved", "Not compared: the registration agency has no description of this work.",
        )  # fmt: skip


async def test_a_text_has_one_reference_in_each_paragraph() -> None:
    same, other = f"Einstein, A. (1905). {TITLE}.", f"Jones K, Smith J. {OTHER} systems. 2020."
    async with proxies() as (proxy, _):
        for text, lines in (
            (f"{same} doi:10.5555/a\n{other} https://doi.org/10.5555/a\nNothing. 2020.\n", [1, 2]),
            (
                f"{same}\ndoi:10.5555/a\n\n[2] Jones K,\nSmith J. {OTHER} systems.\n2020. 10.5555/a\n\nNo DOI\n",
                [2, 6, 8],
            ),
        ):
            rows = await rows_of(proxy, text, "text/plain")
            assert [row["match"] for row in rows][:2] == ["same", "different"]
            assert [row["line"] for row in rows] == lines
        table = await proxy.post(
            "/api/resolve?match=true&fields=match,why&output=csv", f"{other} 10.5555/a", content_type="text/plain"
        )
        assert table.text.splitlines()[1] == 'different,"These differ: title, authors, year."'


async def test_the_page_of_references_shows_both_sides() -> None:
    async with proxies() as (proxy, _):
        text = f"Jones K, Smith J. {OTHER} systems. J Lang. 2020;4:12-19. https://doi.org/10.5555/a"
        for sent in (text, entry(OTHER, author="Jones, K", year=2020)):
            got = await proxy.post("/references", form(sent), content_type=FORM, accept_language="en")
            assert "Registered, but it is another work" in got.text and TITLE in got.text and OTHER in got.text
            assert "The DOI leads to:" in got.text and "The reference says:" in got.text
            assert "These differ: title, authors, year" in " ".join(got.text.split())
            assert "<strong>1</strong> to be looked at" in got.text
        got = await proxy.post("/references", form(entry(TITLE)), content_type=FORM, accept_language="en")
        assert "Registered, and the cited work" in got.text and "<strong>1</strong> registered" in got.text
        assert "Compared with the works of their DOIs: 1 of 1." in got.text
        assert "the registration agencies get the registered DOIs of the list" in got.text
    async with Proxy() as proxy:
        got = await proxy.post("/references", form(entry(TITLE)), content_type=FORM, accept_language="en")
        assert "this resolver asks no registration agency" in got.text
        assert "the registration agencies get" not in got.text


async def check(proxy: Proxy, count: int) -> str:
    """The page about so many references that are right."""
    for number in range(count):
        proxy.upstream.put(f"10.5555/r{number}", url="https://publisher.example/")
    text = "".join(entry(TITLE, f"10.5555/r{number}") for number in range(count))
    got = await proxy.post("/references", form(text), content_type=FORM, accept_language="en")
    assert got.status == 200
    return str(got.text)


LIES: Final = {
    "a page": answer(b"<html>" + b"x" * 5_000, fields="Content-Type: text/html\r\n"),
    "a page as CSL": answer(b"<html>"),
    "406": answer(b"", status="406 Not Acceptable"),
    "half an item": answer(item()[:-9]),
    "a list": answer(b"[" + item(OTHER, "Jones", 1999) + b"]"),
    "an empty title": answer(item("")),
    "5 MB": answer(item("x" * 5_000_000, "Jones", 1999)),
    "another DOI": answer(b'{"DOI": "10.5555/other",' + item(OTHER, "Jones", 1999)[1:]),
    "503": answer(b"", status="503 Busy"),
    "429": answer(b"", status="429 Slow Down", fields="Retry-After: 3600\r\n"),
    "no HTTP": b"\x00\xff" * 100,
}


@table("reply", LIES.values(), ids=LIES)
async def test_what_an_agency_says_accuses_no_reference(reply: bytes) -> None:
    async with proxies() as (proxy, agency):
        agency.reply = reply
        page = await check(proxy, 12)
        assert page.count("Not compared: ") == 13 and "another work" not in page
        assert "Compared with the works of their DOIs: 0 of 12." in page and "<strong>12</strong> registered" in page
        agency.reply = answer(item())
        page = await check(proxy, 1)
        assert TITLE in page or "Not compared" in page, "nothing that was not true is kept"


@table("host", ["10.5555/r0", "HTTPS://doi.org/10.5555/R0", "doi:10.5555/r0"])
async def test_the_doi_of_an_answer_is_compared_as_a_name(host: str) -> None:
    async with proxies() as (proxy, agency):
        agency.reply = answer(b'{"DOI": "' + host.encode() + b'",' + item()[1:])
        assert "Registered, and the cited work" in await check(proxy, 1)


async def test_an_answer_about_the_alias_is_believed() -> None:
    async with proxies() as (proxy, agency):
        proxy.upstream.put("10.5555/old", [value(1, "HS_ALIAS", "10.5555/a")])
        agency.reply = answer(b'{"DOI": "10.5555/A",' + item()[1:])
        [row] = await rows_of(proxy, entry(TITLE, "10.5555/old"))
        assert (row["verdict"], row["match"]) == ("alias", "same")


async def test_a_slow_agency_takes_no_verdict() -> None:
    async with proxies() as (proxy, agency):
        agency.seconds = 1.9
        page = await check(proxy, 200)
        assert (
            "Compared with the works of their DOIs: 200 of 200." in page and "<strong>200</strong> registered" in page
        )


async def test_at_the_end_of_its_time_a_page_has_each_verdict() -> None:
    async with proxies() as (proxy, agency):
        agency.seconds = 7.0
        page = await check(proxy, 200)
        done = int(page.partition("works of their DOIs: ")[2].partition(" ")[0])
        assert 150 < done < 200 and "<strong>200</strong> registered" in page
        assert page.count("did not answer in time") == 200 - done + 1


async def test_eight_readers_at_once_have_each_work() -> None:
    async with proxies() as (proxy, agency):
        agency.seconds = 0.3
        agency.reply = answer(item(OTHER, "Jones", 1999))
        pages = await asyncio.gather(*(check(proxy, 13) for _ in range(8)))
        for page in pages:
            assert page.count("it is another work") == 13 and "Not compared" not in page
        assert len(agency.requests) == 13


async def test_a_host_that_asks_for_a_pause_gets_one_and_each_name_has_its_work() -> None:
    async with proxies() as (proxy, agency):
        agency.reply = answer(b"", status="429 Slow Down", fields="Retry-After: 5\r\n")
        asyncio.get_running_loop().call_later(3.0, lambda: setattr(agency, "reply", answer(item())))
        began = asyncio.get_running_loop().time()
        assert "Compared with the works of their DOIs: 12 of 12." in await check(proxy, 12)
        assert asyncio.get_running_loop().time() - began >= 5.0
        assert len(agency.requests) == 16, "four were sent before the first answer"


async def test_the_tool_for_assistants_says_that_a_line_is_about_another_work() -> None:
    async def compare(name: HandleName, reference: str, client: str | None, priority: Priority) -> Compared:
        return match(read_cited(reference), Work(TITLE, ("Einstein",), 1905))

    lines = [f"Jones K, Smith J. {OTHER} systems. 2020. doi:10.5555/a", f"Einstein A. {TITLE}. doi:10.5555/a"]
    async with assistants() as desk:
        desk.upstream.put("10.5555/a", url="https://publisher.example/a")
        names = desk.tools._names
        assert isinstance(names, OwnNames)
        desk.tools._names = OwnNames(replace(names.batches, compare=compare))
        found = (await desk.call("check_list", lines=lines))["lines"]
        assert [(row["match"], row["title"]) for row in found] == [("different", TITLE), ("same", TITLE)]
        assert found[0]["why"] == "These differ: title, authors, year."
        [problem] = (await desk.call("check_list", lines=lines, problems_only=True))["lines"]
        assert problem["line"] == 1
    async with assistants() as desk:
        desk.upstream.put("10.5555/a", url="https://publisher.example/a")
        [row] = (await desk.call("check_list", lines=lines[:1]))["lines"]
        assert (row["match"], row["title"]) == (None, None)


@pytest.mark.real_time
async def test_a_server_with_a_certificate_of_a_private_authority_is_trusted_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doi_proxy.features.metadata.client.FETCH_TIMEOUT", 600.0)
    pair = self_signed(tmp_path)
    async with FakeUpstream(tls=pair.context) as server:
        server.put("10.5555/a", url="https://publisher.example/a")
        bodies = []
        for ca_file in (None, str(pair.certificate)):
            client = MetadataClient(AllowedAddresses(private=True), {}, ca_file)
            try:
                bodies.append(await client.fetch(f"{server.url}/api/handles/10.5555/a"))
            except ServerFailure as error:
                bodies.append(str(error).partition(":")[0].encode())
            await client.aclose()
    assert bodies[0] == b"ClientConnectorCertificateError"
    assert b"https://publisher.example/a" in (bodies[1] or b"")
