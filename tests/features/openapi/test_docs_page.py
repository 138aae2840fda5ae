"""`/docs`: the description of the API as a page, in the languages of the pages."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from doi_proxy.assembly.core import build_pages
from doi_proxy.assembly.settings import Settings
from doi_proxy.web.pages import Link
from tests.web.proxy import Proxy
from tests.web.test_pages import Page

PAGES = build_pages(Settings())


def test_the_documentation_shows_each_operation_of_the_description() -> None:
    post = {
        "summary": "Check names",
        "tags": ["Check"],
        "requestBody": {"content": {"application/json": {"example": ["10.1000/182"]}}},
        "responses": {},
    }
    schema = {
        "info": {"summary": "A resolver."},
        "tags": [{"name": "Resolve", "description": "From `a` to b."}, {"name": "Check", "description": "Lists."}],
        "paths": {
            "/{doi}": {
                "get": {
                    "summary": "Resolve <it>",
                    "tags": ["Resolve"],
                    "description": "Redirect to `a`.\n\nOr not.",
                    "x-example": "/10.1000/182",
                    "parameters": [{"name": "type", "in": "query", "description": "A type."}],
                    "responses": {"302": {"description": "Found."}},
                },
            },
            "/api/resolve": {"post": post},
        },
    }
    facts: dict[str, Any] = {"schema": schema, "problems": {}, "address": "https://x.example/doi"}
    page = Page(PAGES.render("docs", Link("/doi"), "en", "site.documentation", **facts).decode())
    assert [element.text for element in page.all("h2")] == ["Resolve", "Check"]
    assert [element.text for element in page.all("h3")] == ["Resolve <it>", "Check names"]
    command = "curl -s 'https://x.example/doi/10.1000/182'"
    assert f"Redirect to a. Or not. {command} Parameters type A type. Answers 302 Found." in page.words
    assert """curl -s --json '["10.1000/182"]' 'https://x.example/doi/api/resolve'""" in page.words
    assert page.links["/doi/openapi.json"] == "openapi.json"


@pytest.mark.anyio
async def test_every_page_links_to_the_documentation() -> None:
    async with Proxy() as proxy:
        assert Page((await proxy.get("/", accept_language="en")).text).links["/docs"] == "API documentation"


@pytest.mark.anyio
@pytest.mark.real_time
async def test_the_description_and_its_page_are_not_made_in_the_event_loop() -> None:
    async with Proxy() as proxy:
        before = time.thread_time(), time.process_time()
        answers = await asyncio.gather(*(proxy.get(path) for path in ("/openapi.json", "/docs", "/docs")))
        in_loop, in_all = time.thread_time() - before[0], time.process_time() - before[1]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert in_loop < in_all / 2
