"""The description of the API says what is sent, and the paths beside the names answer like any other."""

from __future__ import annotations

from typing import Any

import pytest

from app.web.languages import load_catalogues
from app.web.openapi import name_routes
from app.web.responses import PAGE_POLICY
from tests.web.proxy import running

pytestmark = pytest.mark.anyio


async def description() -> dict[str, Any]:
    async with running() as proxy:
        got: dict[str, Any] = (await proxy.get("/openapi.json")).json
        return got


async def test_every_answer_is_described_in_words_of_our_own() -> None:
    paths = (await description())["paths"]
    assert {"/{doi}", "/openurl", "/api/handles/{handle}", "/ra/{names}", "/healthz", "/readyz"} <= paths.keys()
    for path, operations in paths.items():
        for operation in operations.values():
            words = {status: answer["description"] for status, answer in operation["responses"].items()}
            assert not {"Successful Response", "Validation Error", ""} & set(words.values()), path


async def test_what_is_never_sent_is_not_described() -> None:
    found = await description()
    described = {status for path in found["paths"].values() for one in path.values() for status in one["responses"]}
    assert "422" not in described
    assert not {"HTTPValidationError", "ValidationError"} & found["components"]["schemas"].keys()


async def test_every_example_of_the_description_is_answered() -> None:
    examples = {
        path: operation["x-example"]
        for path, operations in (await description())["paths"].items()
        for operation in operations.values()
        if "x-example" in operation
    }
    assert len(examples) >= 4
    async with running() as proxy:
        proxy.upstream.put("10.1000/182", url="http://www.doi.org/hb.html")
        proxy.upstream.agency("10.1000", "Example")
        proxy.upstream.agency("10.5281", "Example")
        for path, example in examples.items():
            assert (await proxy.get(example)).status in (200, 302), path


async def test_the_documentation_carries_the_headers_of_every_page() -> None:
    async with running() as proxy:
        docs, home = await proxy.get("/docs"), await proxy.get("/")
    assert docs["content-type"] == home["content-type"]
    for name, value in PAGE_POLICY:
        assert docs[name.decode()] == home[name.decode()] == value.decode()


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/robots.txt", "/healthz", "/readyz", "/static/style.css"])
async def test_head_has_the_status_and_the_headers_of_get(path: str) -> None:
    async with running() as proxy:
        head, get = await proxy.head(path), await proxy.get(path)
    assert (head.status, head.fields) == (get.status, get.fields)


@pytest.mark.parametrize("language", ["de", "fr", "es"])
async def test_the_paths_of_names_are_described_in_every_language(language: str) -> None:
    texts = load_catalogues((language,))[language]
    items: set[tuple[str, str]] = set()
    paths = (await description())["paths"]
    for route in name_routes():
        (operation,) = paths[route.path].values()
        names = {parameter["name"] for parameter in operation["parameters"]}
        items |= {(route.path, item) for item in ("summary", "description", *names, *operation["responses"])}
    missing = {item for item in items if texts.api_text(*item) is None}
    assert not missing, f"add them to app/web/messages/api/{language}.toml"


async def test_the_documentation_is_in_the_language_of_the_reader() -> None:
    async with running() as proxy:
        german = await proxy.get("/docs", accept_language="de")
        english = await proxy.get("/docs")
    assert german["vary"] == english["vary"] == "Accept-Language, Accept-Encoding"
    assert (
        "Was sind diese Texte?" in german.text and "Eine DOI auflösen" in german.text and 'lang="en"' not in german.text
    )
    assert "Resolve a DOI name" in english.text
