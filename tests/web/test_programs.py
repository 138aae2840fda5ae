"""What programs rely on: names without guessing, bounds, request IDs and the address to cite."""

from __future__ import annotations

import pytest

from tests.values import value
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "typed", ["doi:10.1000/182", "https://doi.org/10.1000/182", "%2010.1000/182", "see%20Smith%202003", "urn:doi:10.1"]
)
async def test_what_cannot_be_a_handle_is_refused_without_a_query(typed: str) -> None:
    async with Proxy() as proxy:
        got = await proxy.get(f"/api/handles/{typed}")
        assert (got.status, got.json["responseCode"]) == (400, 102)
        assert "lenient=true" in got.json["message"]
        assert proxy.upstream.queries() == 0


@pytest.mark.parametrize("name", ["foo", "/10.1000/182", "99.99999/x", "10.1000/182%20", "0.NA/10.1", "20.500.12592/x"])
async def test_what_can_be_a_handle_is_queried(proxy: Proxy, name: str) -> None:
    got = await proxy.get(f"/api/handles/{name}")
    assert (got.status, got.json["responseCode"]) == (404, 100)


async def test_with_resolve_any_every_text_is_queried() -> None:
    async with Proxy(resolve="any") as proxy:
        assert (await proxy.get("/api/handles/doi:10.1000/182")).json["responseCode"] == 100


@pytest.mark.parametrize(
    "typed", ["doi:10.1000/182", "https://doi.org/10.1000/182", "%20doi:10.1000/182%0A", "10.1000%2F182"]
)
@pytest.mark.parametrize("flag", ["lenient", "lenient=true"])
async def test_lenient_reads_a_name_as_a_resolution_url_does(proxy: Proxy, typed: str, flag: str) -> None:
    for _ in range(2):  # the second answer is from memory
        got = await proxy.get(f"/api/handles/{typed}?{flag}")
        assert (got.status, got.json["handle"]) == (200, "10.1000/182")
    assert (await proxy.get(f"/api/handles/{typed}?lenient=false")).status == (200 if typed == "10.1000%2F182" else 400)


@pytest.mark.parametrize("index", ["-1", "4294967296", "99999999999", "1.5", "abc", ""])
async def test_a_bad_index_is_refused_with_its_range(proxy: Proxy, index: str) -> None:
    got = await proxy.get(f"/api/handles/10.1000/182?index={index}")
    assert (got.status, got.json["responseCode"]) == (400, 4)
    assert got.json["message"] == f"index must be a whole number from 0 to 4294967295, not {index!r}."


async def test_the_largest_index_is_answered(proxy: Proxy) -> None:
    assert (await proxy.get("/api/handles/10.1000/182?index=4294967295")).json["responseCode"] == 200


@pytest.mark.parametrize(
    "query", ["type[]=EMAIL", "type%5B%5D=EMAIL", "index[]=7", "index%5b%5d=7", "type[]=A&type[]=B"]
)
async def test_brackets_after_type_and_index_mean_the_same(proxy: Proxy, query: str) -> None:
    for got in (
        await proxy.get(f"/api/handles/10.1000/182?{query}"),
        await proxy.post("/api/handles/10.1000/182", query),
    ):
        assert (got.status, got.json["responseCode"]) == (200, 200)


@pytest.mark.parametrize("body", ['{"type[]": ["EMAIL"]}', '{"index[]": [7]}'])
async def test_brackets_are_read_in_json_too(proxy: Proxy, body: str) -> None:
    got = await proxy.post("/api/handles/10.1000/182", body, content_type="application/json")
    assert got.json["responseCode"] == 200


@pytest.mark.parametrize("query", ["noredirect", "type=NOPE", "action=showurls"])
@pytest.mark.parametrize("accept", ["text/html", "*/*"])
async def test_pages_about_a_registered_name_link_to_the_address_to_cite(proxy: Proxy, query: str, accept: str) -> None:
    got = await proxy.get(f"/10.1000/182?{query}", accept=accept)
    assert got.all("link") == ['<https://doi.org/10.1000/182>; rel="cite-as"']


@pytest.mark.parametrize("target", ["/10.5555/nope", "/10.1000?noredirect", "/foo", "/"])
async def test_pages_about_no_registered_doi_name_do_not(proxy: Proxy, target: str) -> None:
    assert (await proxy.get(target))["link"] is None


@pytest.mark.parametrize("target", ["/10.5555/%00", "/foo"])
async def test_a_request_id_is_echoed_without_an_access_log(proxy: Proxy, target: str) -> None:
    answer = await proxy.get(target, x_request_id="a-B_1.2")
    assert (answer["cache-control"], answer["x-request-id"]) == ("no-store", "a-B_1.2")
    assert (await proxy.get(target))["x-request-id"] is None


@pytest.mark.parametrize("target", ["/10.1000/182", "/api/handles/10.1000/182", "/10.5555/nope", "/", "/robots.txt"])
async def test_an_answer_that_a_shared_cache_may_store_has_no_request_id_of_a_client(proxy: Proxy, target: str) -> None:
    for _ in range(2):
        answer = await proxy.get(target, x_request_id="a-B_1.2")
        assert "private" not in str(answer["cache-control"]) and "no-store" not in str(answer["cache-control"])
        assert answer["x-request-id"] is None


@pytest.mark.parametrize("identifier", ["", "a" * 65, "a b", "a,b", 'a"', "<x>"])
async def test_another_request_id_is_not_echoed(proxy: Proxy, identifier: str) -> None:
    assert (await proxy.get("/foo", x_request_id=identifier))["x-request-id"] is None


@pytest.mark.parametrize(("personal", "echoed"), [(False, False), (True, True)])
async def test_an_answer_without_a_task_echoes_the_request_id_if_it_is_private(
    proxy: Proxy, personal: bool, echoed: bool
) -> None:
    if personal:
        locations = '<location href="https://a.example/" addresses="192.0.2.0/24" weight="0"/>'
        locations += '<location href="https://b.example/"/>'
        proxy.upstream.put("10.5555/personal", [value(1, "10320/loc", f"<locations>{locations}</locations>")])
    name = "/10.5555/personal" if personal else "/10.1000/182"
    await proxy.get(name)
    scope = {
        "type": "http",
        "method": "GET",
        "raw_path": name.encode(),
        "query_string": b"",
        "http_version": "1.1",
        "headers": [(b"host", b"x"), (b"x-request-id", b"42")],
    }
    answer = proxy.app.begin(scope, b"")
    assert isinstance(answer, bytes)
    assert (b"cache-control: private" in answer) == personal
    assert (b"\r\nx-request-id: 42\r\n" in answer) == echoed
