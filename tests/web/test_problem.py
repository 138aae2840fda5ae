"""Errors for programs: problem details (RFC 9457), and when a client gets them instead of a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.assembly.features import installed
from doi_proxy.errors import list_errors
from doi_proxy.web.negotiation import wants_problem
from doi_proxy.web.problem import all_titles, problem
from tests.table import table
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

JSON: Final = "application/json"
NEVER_AN_ANSWER: Final = {"StoreError", "DamagedEntry", "ConfigurationError"}
ERRORS: Final = Path(__file__).parents[2].joinpath("docs/errors.md").read_text(encoding="utf-8")


@table(
    ("accept", "expected"),
    [
        ("application/json", True),
        ("application/problem+json", True),
        ("Application/JSON", True),
        ("application/vnd.citationstyles.csl+json", True),
        ("application/json, text/plain, */*", True),
        ("application/json, text/html", True),
        ("text/html;q=0.5, application/json", True),
        ("application/xml, application/json;q=0.2", True),
        ("text/html, application/json", False),
        ("text/html, application/json;q=0.9", False),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", False),
        ("application/json;q=0", False),
        ("application/jsonp", False),
        ("application/x-bibtex", False),
        ("*/*", False),
        ("", False),
        (None, False),
    ],
)
def test_json_is_preferred_by_weight_then_by_place(accept: str | None, expected: bool) -> None:
    assert wants_problem(accept) is expected


async def test_a_name_that_is_not_registered_is_a_problem_with_suggestions(proxy: Proxy) -> None:
    got = await proxy.get("/10.1000/182).", accept=JSON)
    assert (got.status, got["content-type"]) == (404, "application/problem+json")
    assert got.json == {
        "type": "/docs#not-found",
        "title": "The name is not registered",
        "status": 404,
        "detail": "The upstream answered that 10.1000/182). is not registered.",
        "doi": "10.1000/182).",
        "suggestions": got.json["suggestions"],
    }
    assert got.json["suggestions"][0]["doi"] == "10.1000/182"
    assert got["vary"] == "Accept"
    assert (got["cache-control"] or "").startswith("public, max-age=")


async def test_the_page_about_the_same_name_varies_by_accept(proxy: Proxy) -> None:
    got = await proxy.get("/10.1000/182).", accept="text/html")
    assert (got.status, got["content-type"], got["vary"]) == (404, "text/html;charset=utf-8", "Accept, Accept-Language")


@table(
    ("method", "target", "status", "token"),
    [
        ("GET", "/foo", 400, "not-a-doi"),
        ("GET", "/10.5555/%zz", 400, "malformed-escape"),
        ("GET", "/10.5555/%C4", 400, "not-utf-8"),
        ("GET", "/10.5555/" + "a" * 9000, 414, "name-too-long"),
        ("GET", "/10.5555/broken", 502, "upstream-bad-answer"),
        ("GET", "/10.5555/broken?action=api", 502, "upstream-bad-answer"),
        ("GET", "/openurl", 400, "no-doi-in-openurl"),
        ("PUT", "/10.1000/182", 405, "method-not-allowed"),
        ("POST", "/healthz", 405, "method-not-allowed"),
        ("GET", "/status?format=xml", 400, "invalid-parameter"),
        ("GET", "/10.5555/nope", 404, "not-found"),
    ],
)
async def test_an_error_is_a_problem_with_its_type(
    proxy: Proxy, method: str, target: str, status: int, token: str
) -> None:
    got = await proxy.ask(method, target, accept=JSON)
    assert (got.status, got["content-type"]) == (status, "application/problem+json")
    assert (got.json["type"], got.json["status"], got.json["title"]) == (f"/docs#{token}", status, all_titles()[token])
    assert got.json["detail"]


async def test_a_problem_keeps_the_headers_of_its_error(proxy: Proxy) -> None:
    got = await proxy.get("/10.5555/broken", accept=JSON)
    assert got["proxy-status"] == 'doi-proxy; error=http_protocol_error; details="upstream-bad-answer"'
    assert (got["cache-control"], got.json["doi"]) == ("no-store", "10.5555/broken")


async def test_a_problem_says_when_to_try_again() -> None:
    async with Proxy(client_rate=1.0, client_burst=1) as proxy:
        await proxy.get("/")
        got = await proxy.get("/foo", accept=JSON)
    assert (got.status, got.json["type"]) == (429, "/docs#rate-exceeded")
    assert str(got.json["retry_after"]) == got["retry-after"]


async def test_the_type_begins_with_the_path_of_this_resolver() -> None:
    async with Proxy(public_url="https://library.example/doi") as proxy:
        assert (await proxy.get("/doi/foo", accept=JSON)).json["type"] == "/doi/docs#not-a-doi"
        assert (await proxy.ask("POST", "/doi/healthz")).json["type"] == "/doi/docs#method-not-allowed"


async def test_the_handle_api_and_which_ra_keep_their_shape(proxy: Proxy) -> None:
    record = await proxy.get("/api/handles/10.5555/nope", accept=JSON)
    assert record.json == {"responseCode": 100, "handle": "10.5555/nope"}
    agencies = await proxy.get("/ra/" + ",".join(["10.1000"] * 101), accept=JSON)
    assert (agencies.status, list(agencies.json)) == (400, ["message"])


async def test_head_has_the_headers_of_the_problem(proxy: Proxy) -> None:
    head, get = await proxy.head("/foo", accept=JSON), await proxy.get("/foo", accept=JSON)
    assert (head.status, head.fields, head.body) == (get.status, get.fields, b"")


@pytest.mark.parametrize("language", ["en", "de"])
async def test_the_documentation_explains_every_type_in_english(proxy: Proxy, language: str) -> None:
    page = (await proxy.get("/docs", accept_language=language)).text
    assert '<div lang="en">' in page
    assert [token for token in all_titles() if f'id="{token}"' not in page] == []


def test_every_error_has_a_title_and_an_anchor_in_the_documentation() -> None:
    installed()
    tokens = {one.token for one in list_errors() if one.__name__ not in NEVER_AN_ANSWER}
    assert tokens <= all_titles().keys()
    assert set(re.findall(r'<a id="([a-z0-9-]+)"></a>', ERRORS)) == all_titles().keys()


def test_a_status_alone_has_a_type_too() -> None:
    for status in (400, 401, 403, 404, 405, 413, 415, 418, 429, 500, 503):
        reply = problem(status, "A sentence.")
        token = re.search(rb'"type":"/docs#([a-z-]+)"', reply.body)
        assert token is not None
        assert token[1].decode() in all_titles()
