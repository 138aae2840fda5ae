"""Methods (RFC 9110, section 9) and what a browser lets other pages see (WHATWG Fetch, CORS protocol)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import Clock
from tests.registry_records import FILE_DATE, write_registry
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio


METHODS = {"GET", "HEAD", "POST", "OPTIONS"}
PATHS = ["/10.1000/182", "/api/handles/10.1000/182", "/", "/foo", "/api/foo", "/openapi.json", "/healthz", "/docs"]


#: One request for each kind of answer there is.
ANSWERS = [
    ("GET", "/", 200),
    ("GET", "/10.1000/182", 302),
    ("GET", "/10.1000/182?noredirect", 200),
    ("GET", "/10.5555/unknown", 404),
    ("GET", "/10.5555/broken", 502),
    ("GET", "/foo", 400),
    ("PUT", "/10.1000/182", 405),
    ("OPTIONS", "/10.1000/182", 204),
    ("GET", "/api/handles/10.1000/182", 200),
    ("GET", "/healthz", 200),
    ("GET", "/docs", 200),
    ("GET", "/static/style.css", 200),
]


@table(("method", "target", "status"), ANSWERS, ids=lambda value: str(value)[:32])
@table("origin", ["https://app.example", "null", None])
async def test_any_page_may_read_any_answer(
    proxy: Proxy, method: str, target: str, status: int, origin: str | None
) -> None:
    headers = {} if origin is None else {"origin": origin}
    reply = await proxy.ask(method, target, **headers)
    assert reply.status == status
    assert reply.all("access-control-allow-origin") == ["*"]
    assert reply["access-control-allow-credentials"] is None
    exposed = {name.strip().lower() for name in (reply["access-control-expose-headers"] or "").split(",")}
    assert {
        "location",
        "etag",
        "age",
        "cache-status",
        "proxy-status",
        "retry-after",
        "link",
        "content-length",
    } <= exposed
    assert reply["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", PATHS)
async def test_a_preflight_allows_what_is_answered(proxy: Proxy, path: str) -> None:
    reply = await proxy.ask(
        "OPTIONS",
        path,
        origin="https://app.example",
        access_control_request_method="GET",
        access_control_request_headers="x-requested-with, if-none-match",
    )
    assert (reply.status, reply.body) == (204, b"")
    assert {"GET", "HEAD"} <= set((reply["access-control-allow-methods"] or "").split(", "))
    assert reply["access-control-allow-headers"] == "x-requested-with, if-none-match"
    assert int(reply["access-control-max-age"] or 0) > 0
    assert reply["cache-control"] is None  # RFC 9110, section 9.3.7


async def test_a_preflight_without_header_names_is_answered_too(proxy: Proxy) -> None:
    reply = await proxy.ask("OPTIONS", "/10.1000/182", origin="null", access_control_request_method="PUT")
    assert (reply.status, reply["access-control-allow-origin"]) == (204, "*")
    assert "PUT" not in (reply["access-control-allow-methods"] or "")


@pytest.mark.parametrize("path", ["/10.1000/182", "/api/handles/10.1000/182", "/", "*"])
async def test_options_names_the_methods_without_a_query(path: str) -> None:
    async with Proxy() as proxy:
        reply = await proxy.ask("OPTIONS", path)
        assert (reply.status, set((reply["allow"] or "").split(", "))) == (204, METHODS)
        assert proxy.upstream.queries() == 0


@table("method", ["PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "CONNECT"])
@table("path", ["/10.1000/182", "/", "/foo", "/10.5555/%zz"])
async def test_a_page_takes_no_other_method(proxy: Proxy, method: str, path: str) -> None:
    reply = await proxy.ask(method, path)
    assert (reply.status, set((reply["allow"] or "").split(", "))) == (405, METHODS)
    assert reply["content-type"] == "text/html;charset=utf-8"


@table("method", ["PUT", "DELETE", "PATCH", "TRACE"])
@table("path", ["/api/handles/10.1000/182", "/API/handles/10.1000/182", "/api/handles", "/api/foo"])
async def test_the_api_takes_no_other_method(proxy: Proxy, method: str, path: str) -> None:
    reply = await proxy.ask(method, path)
    assert (reply.status, set((reply["allow"] or "").split(", "))) == (405, METHODS)
    assert reply.json["responseCode"] == 4


async def test_a_refused_method_causes_no_query() -> None:
    async with Proxy() as proxy:
        for path in ("/10.1000/182", "/api/handles/10.1000/182"):
            assert (await proxy.ask("DELETE", path)).status == 405
        assert proxy.upstream.queries() == 0


@pytest.mark.parametrize("credentials", [{"cookie": "a=b"}, {"authorization": "Basic eDp5"}, {"referer": "http://x/"}])
async def test_nothing_of_the_client_reaches_the_upstream(proxy: Proxy, credentials: dict[str, str]) -> None:
    name = proxy.name()
    proxy.upstream.put(name, url="http://example.org/")
    reply = await proxy.get(
        "/" + name, user_agent="spy/1.0", accept_language="xx", x_forwarded_for="1.2.3.4", **credentials
    )
    assert reply.status == 302
    sent = proxy.upstream.last_headers
    # CDN-Loop has the identifier of this proxy, never a header of the client.
    assert set(sent) <= {"host", "accept", "accept-encoding", "connection", "user-agent", "cdn-loop"}
    assert sent["cdn-loop"].startswith("doi-proxy-")
    assert sent["user-agent"].startswith("doi-proxy/")


@pytest.mark.parametrize("target", ["/10.1000/182", "/", "/10.5555/unknown", "/api/handles/10.1000/182", "/foo"])
async def test_no_answer_sets_a_cookie(proxy: Proxy, target: str) -> None:
    assert (await proxy.get(target))["set-cookie"] is None


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/healthz", "GET, HEAD, OPTIONS"),
        ("/readyz", "GET, HEAD, OPTIONS"),
        ("/static/style.css", "GET, HEAD, OPTIONS"),
        ("/preferences", "GET, HEAD, POST, OPTIONS"),
        ("/ra/10.1000", "GET, HEAD, POST, OPTIONS"),
    ],
)
async def test_options_names_the_methods_of_that_path(proxy: Proxy, path: str, allow: str) -> None:
    assert (await proxy.ask("OPTIONS", path))["allow"] == allow
    assert (await proxy.ask("DELETE", path))["allow"] == allow


async def test_the_admin_api_names_the_methods_of_a_path() -> None:
    async with Proxy(admin_token="correct-horse-battery") as proxy:
        asked = {"authorization": "Bearer correct-horse-battery"}
        got = await proxy.ask("OPTIONS", "/admin/reload", **asked)
        assert (got.status, got["allow"]) == (204, "POST, OPTIONS")
        got = await proxy.get("/admin/reload", **asked)
        assert (got.status, got["allow"], got["content-type"]) == (405, "POST, OPTIONS", "application/problem+json")


# --- What the answers say about a record from a registration agency's file -------------------------------------------


NAME = "10.5555/known"
TARGET = "https://a.example/registry"
STATUS = f"doi-proxy; hit; detail=registry; age={int(Clock()() - FILE_DATE)}"


@pytest.fixture
async def sealed(tmp_path: Path) -> AsyncIterator[Proxy]:
    path = tmp_path / "store.sqlite3"
    write_registry(path, Clock(), {NAME: TARGET})
    async with Proxy(store_url=f"sqlite:///{path}", mode="sealed") as proxy:
        yield proxy


async def test_a_redirect_leads_to_its_url_and_says_so(sealed: Proxy) -> None:
    for _ in range(2):
        reply = await sealed.get(f"/{NAME}")
        assert (reply.status, reply["location"], reply["cache-status"]) == (302, TARGET, STATUS)
        assert reply.max_age == 30


async def test_json_names_the_agency_and_the_date(sealed: Proxy) -> None:
    reply = await sealed.get(f"/api/handles/{NAME}")
    assert (reply.status, reply["cache-status"]) == (200, STATUS)
    assert reply.json["registry"] == {"agency": "Crossref", "date": "2023-11-01T00:00:00Z"}
    assert [(value["type"], value["data"]["value"]) for value in reply.json["values"]] == [("URL", TARGET)]


async def test_a_page_says_so_in_words(sealed: Proxy) -> None:
    reply = await sealed.get(f"/{NAME}?noredirect", accept_language="en")
    assert "from a file of its registration agency" in reply.text
    assert "1 November 2023, 00:00 UTC" in reply.text
    # Not that it lacks the record that the page shows.
    assert "Reason: This resolver works without a connection to the registry.</p>" in " ".join(reply.text.split())


async def test_a_row_of_a_list_is_stale_and_says_so(sealed: Proxy) -> None:
    reply = await sealed.post("/api/resolve", NAME + "\n", content_type="text/plain", accept="application/x-ndjson")
    assert (reply.json["verdict"], reply.json["url"], reply.json["stale"]) == ("resolved", TARGET, True)
    assert reply.json["message"].startswith(
        "The record is from a registration agency's file: This resolver runs in sealed mode and answers from its store"
    )


async def test_a_name_that_no_file_has_is_not_denied(sealed: Proxy) -> None:
    assert (await sealed.get("/10.5555/unknown")).status == 504


async def test_a_sealed_proxy_whose_store_cannot_be_opened_could_not_verify(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with Proxy(store_url=f"sqlite:///{tmp_path}/file/store.sqlite3", mode="sealed") as proxy:
        assert (await proxy.get("/10.1000/182")).status == 504
        assert (await proxy.get("/api/handles/10.1000/182")).status == 504
        ready = (await proxy.get("/readyz")).json
        assert (ready["ready"], ready["detail"]["store"]) == (True, "failing")
