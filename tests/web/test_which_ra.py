"""Which RA over HTTP: one row a name, in order, always 200, and "does not exist" only if the upstream said so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from doi_proxy.web.redirect import MAX_NAMES
from tests.table import table
from tests.values import BROWSER, value
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    async with Proxy() as proxy:
        put = proxy.upstream.put
        put("10.5555", [value(1, "HS_NAMESPACE", "<n><locs>10.SERV/ONE</locs></n>")])
        put("10.SERV/ONE", [value(1, "10320/ra_name", "Agency One")])
        put("10.6666", [value(1, "HS_SERV", "10.SERV/DATACITE")])
        put("10.SERV/DATACITE", [value(1, "DESC", "no name here")])
        put("10.7777", [value(1, "EMAIL", "x@example.org")])
        put("10.8888", [value(1, "EMAIL", "x@example.org")])
        proxy.upstream.agency("10.8888", "mEDRA")
        for name in ("10.5555/a", "10.6666/b", "10.7777/c", "10.8888/d", "10.5555/x,y", "10.5555/sici(1)3:4%2F<5>"):
            put(name, url="http://example.org/")
        yield proxy


@table(
    ("names", "expected"),
    [
        ("10.5555/a", [{"DOI": "10.5555/a", "RA": "Agency One"}]),
        ("10.6666/b", [{"DOI": "10.6666/b", "RA": "DataCite"}]),
        # The upstream's own service, for what the records do not tell.
        ("10.8888/d", [{"DOI": "10.8888/d", "RA": "mEDRA"}]),
        ("", [{"DOI": "", "status": "Invalid DOI"}]),
        ("10.5555/%FF", [{"DOI": "10.5555/%FF", "status": "Invalid DOI"}]),
        ("10.5555/a%00b", [{"DOI": "10.5555/a\x00b", "status": "Invalid DOI"}]),
        ("10.5555/sici(1)3:4%252F%3C5%3E", [{"DOI": "10.5555/sici(1)3:4%2F<5>", "RA": "Agency One"}]),
        # A label is echoed as it was typed.
        ("doi:10.5555/a", [{"DOI": "doi:10.5555/a", "RA": "Agency One"}]),
        (
            "10.6666/b,notADoi,10.5555/none,10.5555/a,10.6666/b",
            [
                {"DOI": "10.6666/b", "RA": "DataCite"},
                {"DOI": "notADoi", "status": "Invalid DOI"},
                {"DOI": "10.5555/none", "status": "DOI does not exist"},
                {"DOI": "10.5555/a", "RA": "Agency One"},
                {"DOI": "10.6666/b", "RA": "DataCite"},
            ],
        ),
    ],
)  # fmt: skip
@table("path", ["/doiRA/", "/ra/", "/RA/", "/DOIra/"])
async def test_a_row_tells_the_agency_or_why_none_is_told(
    proxy: Proxy, path: str, names: str, expected: list[dict[str, str]]
) -> None:
    got = await proxy.get(path + names)
    assert (got.status, got["content-type"]) == (200, "application/json;charset=utf-8")
    assert got.json == expected


async def test_the_text_is_indented_as_that_of_doi_org(proxy: Proxy) -> None:
    got = await proxy.get("/doiRA/10.5555/a")
    assert got.text == '[\n  {\n    "DOI": "10.5555/a",\n    "RA": "Agency One"\n  }\n]'


@pytest.mark.parametrize("silent", ["10.5555/a", "10.5555", "10.SERV/ONE"])
async def test_silence_is_not_a_missing_name(proxy: Proxy, silent: str) -> None:
    proxy.upstream.fault(silent, "status", status=503)
    got = await proxy.get("/doiRA/10.5555/a,10.6666/b")
    assert got.json == [
        {"DOI": "10.5555/a", "status": "Could not verify"},
        {"DOI": "10.6666/b", "RA": "DataCite"},
    ]
    assert got["cache-control"] == "no-store"


async def test_a_silent_which_ra_of_the_upstream_is_no_unknown(proxy: Proxy) -> None:
    await proxy.get("/10.8888?noredirect")
    proxy.upstream.fault("10.8888", "garbage")
    assert (await proxy.get("/ra/10.8888/d")).json == [{"DOI": "10.8888/d", "status": "Could not verify"}]


async def test_what_is_neither_doi_nor_prefix_is_invalid_without_a_query(proxy: Proxy) -> None:
    names = ["foo", "10", "10.", "11.5555/a", "20.500.12345/a", "10/abcde", "/"]
    got = await proxy.get("/ra/" + ",".join(names))
    assert got.json == [{"DOI": name, "status": "Invalid DOI"} for name in names]
    assert proxy.upstream.queries() == 0


async def test_a_whole_answer_may_be_kept_a_while(proxy: Proxy) -> None:
    assert (await proxy.get("/doiRA/10.5555/a,notADoi")).max_age == 300
    assert (await proxy.get("/doiRA/10.5555/a,10.7777/c"))["cache-control"] == "no-store"


async def test_most_names_at_once(proxy: Proxy) -> None:
    names = ",".join(["10.5555/a"] * MAX_NAMES)
    assert len((await proxy.get(f"/doiRA/{names}")).json) == MAX_NAMES
    got = await proxy.get(f"/doiRA/{names},10.5555/a")
    assert got.status == 400 and str(MAX_NAMES) in got.json["message"]
    assert proxy.upstream.queries("10.5555/a") == 1


@pytest.mark.parametrize(("agency", "expected"), [("mEDRA", {"RA": "mEDRA"}), (None, {"status": "Unknown"})])
async def test_the_service_of_the_upstream_gets_one_question_for_a_prefix(
    proxy: Proxy, agency: str | None, expected: dict[str, str]
) -> None:
    names = [f"10.9999/{number}" for number in range(20)]
    proxy.upstream.put("10.9999", [value(1, "EMAIL", "x@example.org")])
    for name in names:
        proxy.upstream.put(name, url="http://example.org/")
    if agency is not None:
        proxy.upstream.agency("10.9999", agency)
    got = await proxy.get(f"/ra/{','.join(names)}")
    assert got.json == [{"DOI": name, **expected} for name in names]
    assert proxy.upstream.agency_queries == 1


@table("name", ["<img src=x onerror=y>", '"}],"RA":"x', "10.5555/\u202e", "\\", "ä"])
async def test_a_name_is_a_json_string(proxy: Proxy, name: str) -> None:
    quoted = "".join(f"%{byte:02X}" for byte in name.encode())
    (row,) = (await proxy.get(f"/doiRA/{quoted}")).json
    assert row["DOI"] == name and set(row) == {"DOI", "status"}


async def test_a_browser_gets_a_page_with_a_row_for_each_name(proxy: Proxy) -> None:
    got = await proxy.get("/ra/10.5555/a,10.7777/c,10.5555/none,x%3Cb%3E", accept=BROWSER)
    assert (got.status, got["content-type"], got["vary"]) == (
        200, "text/html;charset=utf-8", "Accept, Accept-Language"
    )  # fmt: skip
    words = " ".join(got.text.split())
    for shown in ("Agency One", "No record states its agency", "This name is not registered.", "not a DOI or prefix"):
        assert shown in words
    assert 'href="/10.5555/a?noredirect"' in words and "<b>" not in words


@pytest.mark.parametrize("path", ["/ra/", "/doiRA/"])
async def test_a_browser_gets_the_form_where_no_name_is_given(proxy: Proxy, path: str) -> None:
    got = await proxy.get(path, accept=BROWSER)
    assert got.status == 200 and '<form class="resolve hero" method="get" action="/ra/">' in got.text
    assert "<table" not in got.text


async def test_the_form_takes_names_with_commas_or_spaces_between(proxy: Proxy) -> None:
    got = await proxy.get("/ra/?names=doi%3A10.5555%2Fa%2C+10.6666+10.8888%2Fd%0A", accept=BROWSER)
    for shown in ("doi:10.5555/a", "DataCite", "mEDRA"):
        assert shown in got.text
    assert got["cache-control"] == "public, max-age=300"


async def test_more_names_than_are_answered_are_refused_in_words(proxy: Proxy) -> None:
    got = await proxy.get("/ra/" + ",".join(["10.5555"] * (MAX_NAMES + 1)), accept=BROWSER, accept_language="es")
    assert got.status == 400 and "Ha introducido 101." in got.text


@table("accept", ["*/*", "application/json", "application/json, text/html;q=0.9", "text/html;q=0"])
async def test_a_program_gets_the_same_bytes_whatever_a_browser_got(proxy: Proxy, accept: str) -> None:
    plain = await proxy.get("/ra/10.5555/a")
    got = await proxy.get("/ra/10.5555/a", accept=accept)
    assert (got.body, got.fields) == (plain.body, plain.fields)
    assert got["content-type"] == "application/json;charset=utf-8" and got["vary"] == "Accept"


async def test_each_parameter_is_a_name_for_a_program(proxy: Proxy) -> None:
    got = await proxy.get("/ra/?names=10.5555%2Fa&names=10.5555%2Fx%2Cy&names=10.7777")
    assert [row["DOI"] for row in got.json] == ["10.5555/a", "10.5555/x,y", "10.7777"]
    assert got.json[0] == (await proxy.get("/ra/10.5555/a")).json[0]
    many = await proxy.get("/ra/?" + "&".join(["names=10.5555"] * (MAX_NAMES + 1)))
    assert (many.status, many.json) == (400, {"message": "At most 100 names are answered at once; these are 101."})


async def test_a_name_that_an_operator_calls_withdrawn_is_not_said_to_be_unregistered(tmp_path: Path) -> None:
    records = tmp_path / "records.toml"
    records.write_text('[[record]]\ndoi = "10.5555/a"\ntombstone = { reason = "Retracted.", date = 2026-03-01 }\n')
    async with Proxy(local_records=records) as proxy:
        proxy.upstream.put("10.5555", [value(1, "HS_NAMESPACE", "<n><locs>10.SERV/ONE</locs></n>")])
        proxy.upstream.put("10.SERV/ONE", [value(1, "10320/ra_name", "Agency One")])
        assert (await proxy.get("/doiRA/10.5555/a")).json == [{"DOI": "10.5555/a", "RA": "Agency One"}]
