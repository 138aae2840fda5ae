"""The description of the API says what is sent, and the paths beside the names answer like any other.

That each answer of a test is described is checked for every test: see described.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from jsonschema import Draft202012Validator

from doi_names.name import MAX_NAME_BYTES
from doi_proxy.resolver.resolution import MEDIA_TYPES
from doi_proxy.web.api import MAX_CALLBACK
from doi_proxy.web.redirect import MAX_NAMES
from doi_proxy.web.request_path import MAX_INDEX, MAX_LOCATTS, MAX_PARAMETERS
from doi_proxy.web.responses import PAGE_POLICY
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio
#: Everything that adds paths is switched on.
EVERYTHING = {"admin_token": "a" * 40}
EXAMPLE_NAME: Final = re.compile(r"\{[a-z]+\}")
#: What the proxy of these tests has not: a process to reload. Its own tests ask for it.
UNANSWERED: Final = {("/admin/reload", "post")}
#: Bytes of the document, and the number of its operations: a reader and a generator of clients take it whole.
MOST_BYTES: Final = 150_000
MOST_OPERATIONS: Final = 40
#: The documents by the settings of their proxies.
_DOCUMENTS: Final[dict[tuple[tuple[str, Any], ...], str]] = {}


async def description(**settings: Any) -> dict[str, Any]:
    """The document of a proxy with these settings. It is the same for each test, so one proxy sends it."""
    key = tuple(sorted(settings.items()))
    if key not in _DOCUMENTS:
        async with Proxy(**settings) as proxy:
            _DOCUMENTS[key] = (await proxy.get("/openapi.json")).text
    document: dict[str, Any] = json.loads(_DOCUMENTS[key])
    return document


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Each operation with its path and method."""
    return [
        (path, method, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    ]


def resolved(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """A part, or the component that it refers to."""
    if "$ref" not in part:
        return part
    _, _, kind, name = part["$ref"].split("/")
    found: dict[str, Any] = document["components"][kind][name]
    return found


async def test_every_answer_is_described_in_words_of_our_own() -> None:
    document = await description(**EVERYTHING)
    for path, _, operation in operations(document):
        words = {resolved(document, one)["description"] for one in operation["responses"].values()}
        assert not {"Successful Response", "Validation Error", ""} & words, path


async def test_what_is_never_sent_is_not_described() -> None:
    document = await description(**EVERYTHING)
    assert "422" not in {status for *_, operation in operations(document) for status in operation["responses"]}
    assert not {"HTTPValidationError", "ValidationError"} & document["components"]["schemas"].keys()


async def test_the_description_has_what_a_program_calls_and_no_more() -> None:
    document = await description(**EVERYTHING)
    assert {method for _, method, _ in operations(document)} == {"get", "post"}
    assert len(operations(document)) <= MOST_OPERATIONS
    assert len(json.dumps(document, separators=(",", ":")).encode()) <= MOST_BYTES
    assert not {"/", "/docs", "/favicon.ico", "/references", "/static/{file}"} & document["paths"].keys()
    assert "doi_proxy_requests_total" not in json.dumps([one for one in operations(document) if one[0] != "/metrics"])


@pytest.mark.parametrize("settings", [{}, EVERYTHING])
async def test_every_json_endpoint_of_the_application_is_described(settings: dict[str, Any]) -> None:
    async with Proxy(**settings) as proxy:
        document = (await proxy.get("/openapi.json")).json
        app: Any = proxy.app
        routes = [*app._operations.app.routes, *(route for gate in app._operations.gates for route in gate.app.routes)]
        endpoints = {route.path_format for route in routes if getattr(route, "include_in_schema", False)}
        names = {"/{doi}", "/openurl", "/api/handles/{handle}", "/ra/{names}", "/ra/", "/metrics"}
        assert names | endpoints == document["paths"].keys()
        for path in endpoints:
            answer = await proxy.ask("OPTIONS", path.replace("{", "").replace("}", ""), **authorization(settings))
            allow = {method.strip().lower() for method in (answer["allow"] or "").split(",")}
            assert allow - {"head", "options"} == document["paths"][path].keys(), path


def authorization(settings: dict[str, Any]) -> dict[str, str]:
    """The header that the admin API needs."""
    return {"authorization": f"Bearer {settings['admin_token']}"} if "admin_token" in settings else {}


async def test_every_component_of_the_description_is_used() -> None:
    document = await description(**EVERYTHING)
    text = json.dumps(document)
    components = [
        (kind, name) for kind in ("headers", "parameters", "responses") for name in document["components"][kind]
    ]
    assert [f"{kind}/{name}" for kind, name in components if f'"#/components/{kind}/{name}"' not in text] == []


async def test_the_limits_in_the_description_are_those_of_the_program() -> None:
    found = (await description())["components"]["parameters"]
    schemas = {name: parameter["schema"] for name, parameter in found.items()}
    assert schemas["doi"]["maxLength"] == schemas["handle"]["maxLength"] == MAX_NAME_BYTES
    assert schemas["type"]["maxItems"] == schemas["index"]["maxItems"] == MAX_PARAMETERS
    assert schemas["index"]["items"]["maximum"] == MAX_INDEX
    assert schemas["locatt"]["maxItems"] == MAX_LOCATTS
    assert schemas["callback"]["maxLength"] == MAX_CALLBACK
    assert schemas["format"]["enum"] == list(MEDIA_TYPES)
    assert found["format"]["description"].endswith(f"in this format: {', '.join(MEDIA_TYPES)}.")
    assert f"at most {MAX_NAMES}," in found["names"]["description"]


async def test_operations_have_names_that_follow_from_method_and_path() -> None:
    described = operations(await description(**EVERYTHING))
    found = {operation["operationId"] for *_, operation in described}
    assert len(found) == len(described)
    assert {"get_doi", "get_api_handles", "post_api_parse", "get_healthz", "get_ra_list"} <= found


async def test_no_parameter_has_an_empty_default() -> None:
    """A generated client would send it, and a flag counts by being there."""
    document = await description(**EVERYTHING)
    for path, _, operation in operations(document):
        parameters = [resolved(document, one) for one in operation.get("parameters", ())]
        assert not [one["name"] for one in parameters if one["schema"].get("default") in ("", [])], path


@asynccontextmanager
async def example_site() -> AsyncIterator[tuple[Proxy, dict[str, Any]]]:
    """A proxy with what the examples need, and its document."""
    async with Proxy(**EVERYTHING, status_networks="0.0.0.0/0, ::/0") as proxy:
        proxy.upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
        proxy.upstream.put("10.5281/1", url="https://example.org/1")
        for prefix in ("10.1000", "10.5281"):
            proxy.upstream.agency(prefix, "Example")
        # Some operations are about a name of the cache.
        await proxy.get("/10.1000/182")
        yield proxy, (await proxy.get("/openapi.json")).json


async def test_every_operation_has_a_tag_and_an_example() -> None:
    document = await description(**EVERYTHING)
    for path, method, operation in operations(document):
        at = f"{method} {path}"
        assert operation["tags"], at
        parameters = [resolved(document, one) for one in operation.get("parameters", ())]
        needed = [one for one in parameters if one["required"]]
        assert "x-example" in operation or all("examples" in {**one, **one["schema"]} for one in needed), at
        bodies = operation.get("requestBody", {}).get("content", {})
        assert all(body.get("example") for body in bodies.values()), at
        for status, answer in operation["responses"].items():
            if status[0] not in "23":
                continue
            found = resolved(document, answer)
            for kind, content in found.get("content", {}).items():
                assert "example" in content or "examples" in content["schema"], f"{at} {status} {kind}"
            assert "content" in found or "headers" in found or status == "304", at


async def test_every_example_is_of_its_schema() -> None:
    document = await description(**EVERYTHING)
    tried = 0
    for path, method, operation in operations(document):
        bodies = operation.get("requestBody", {}).get("content", {})
        answers = [resolved(document, answer).get("content", {}) for answer in operation["responses"].values()]
        for contents in (bodies, *answers):
            for kind, content in contents.items():
                if "example" in content:
                    schema = {**content["schema"], "components": document["components"]}
                    errors = [error.message for error in Draft202012Validator(schema).iter_errors(content["example"])]
                    assert errors == [], f"{method} {path} {kind}"
                    tried += 1
    assert tried >= 40


async def test_every_example_of_a_request_has_the_answer_of_the_example() -> None:
    """The members are the same. Where the answer is a list, those of its first item are."""
    tried = set()
    async with example_site() as (proxy, document):
        for path, method, operation in operations(document):
            bodies = operation.get("requestBody", {}).get("content", {"": {"example": ""}})
            if method not in ("get", "post") or (path, method) in UNANSWERED:
                continue
            target = operation.get("x-example") or EXAMPLE_NAME.sub("10.1000/182", path)
            for kind, content in bodies.items():
                example = content["example"]
                body = example if isinstance(example, str) else json.dumps(example)
                headers = authorization(EVERYTHING) | ({"content_type": kind} if kind else {})
                got = await proxy.ask(method.upper(), target, body=body, **headers)
                assert got.status in (200, 302), (path, method, kind)
                media_type = (got["content-type"] or "").partition(";")[0]
                answer = resolved(document, operation["responses"][str(got.status)]).get("content", {})
                if media_type == "application/json":
                    shown = members(answer[media_type]["example"])
                    assert shown and shown <= members(got.json), (path, kind)
                tried.add(f"{method} {path}")
    assert len(tried) == len(operations(document)) - len(UNANSWERED)


async def test_every_default_is_what_the_server_does_without_the_parameter() -> None:
    tried = []
    async with example_site() as (proxy, document):
        for path, method, operation in operations(document):
            parameters = [resolved(document, one) for one in operation.get("parameters", ())]
            defaults = [(one["name"], one["schema"]["default"]) for one in parameters if "default" in one["schema"]]
            if not defaults:
                continue
            query = [("doi", "10.1000/182")] if any(one["name"] == "doi" for one in parameters) else []
            kind, content = next(iter(operation.get("requestBody", {}).get("content", {"": {"example": ""}}).items()))
            headers = authorization(EVERYTHING) | ({"content_type": kind} if kind else {})
            body = json.dumps(content["example"]) if kind == "application/json" else content["example"]
            got = [
                await proxy.ask(method.upper(), f"{path}?{urlencode(sent)}", body=body, **headers)
                for sent in (query, [*query, *((name, json.dumps(one).strip('"')) for name, one in defaults)])
            ]
            assert (got[0].status, got[0].body) == (got[1].status, got[1].body) != (400, b""), path
            tried += defaults
    assert len(tried) >= 6


@pytest.mark.parametrize(
    ("path", "row", "kinds"),
    [
        ("/api/parse", "ParsedItemModel", {"application/json", "application/x-ndjson"}),
        ("/api/extract", "FoundNameModel", {"application/json", "application/x-ndjson", "text/csv"}),
        ("/api/resolve", "RowModel", {"application/json", "application/x-ndjson", "text/csv"}),
    ],
)
async def test_the_rows_about_a_list_are_described_in_each_of_their_media_types(
    path: str, row: str, kinds: set[str]
) -> None:
    document = await description()
    content = resolved(document, document["paths"][path]["post"]["responses"]["200"])["content"]
    reference = {"$ref": f"#/components/schemas/{row}"}
    assert content.keys() == kinds
    assert content["application/json"]["schema"]["items"] == reference
    assert content["application/x-ndjson"]["schema"] == reference
    assert "text/csv" not in kinds or content["text/csv"]["schema"]["type"] == "string"


async def test_what_crawlers_may_fetch_is_not_a_part_of_the_api() -> None:
    async with Proxy() as proxy:
        assert (await proxy.get("/robots.txt")).status == 200
        assert "robots" not in (await proxy.get("/openapi.json")).text


def members(answer: Any) -> set[str]:
    """The names of the members of an object, or of the first of a list."""
    return set(answer[0] if isinstance(answer, list) else answer)


async def test_the_documentation_carries_the_headers_of_every_page() -> None:
    async with Proxy() as proxy:
        docs, home = await proxy.get("/docs"), await proxy.get("/")
    assert docs["content-type"] == home["content-type"]
    for name, value in PAGE_POLICY:
        assert docs[name.decode()] == home[name.decode()] == value.decode()


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/robots.txt", "/healthz", "/readyz", "/static/style.css"])
async def test_head_has_the_status_and_the_headers_of_get(path: str) -> None:
    async with Proxy() as proxy:
        head, get = await proxy.head(path), await proxy.get(path)
    assert (head.status, head.fields) == (get.status, get.fields)


async def test_the_documentation_is_in_english_within_the_frame_of_the_language_of_the_reader() -> None:
    async with Proxy() as proxy:
        german = await proxy.get("/docs", accept_language="de")
    assert german["vary"] == "Accept-Language, Accept-Encoding"
    assert '<html lang="de">' in german.text and "API-Dokumentation" in german.text
    assert 'lang="en"' in german.text and "Resolve a DOI name" in german.text
