"""One text has one reading, wherever it is sent: form, parse, extract, resolve, list, assistants, command."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Final
from urllib.parse import quote, unquote

import pytest

from doi_names.find_names import find_names
from doi_names.suggestion import read_best
from doi_proxy.commands.main import main
from tests.features.assistants.test_tools import running as running_tools
from tests.features.texts.dirty_texts import DirtyText, read_dirty_texts
from tests.values import BROWSER
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

#: Of the dirty texts that mean one name, so many are read as exactly that name.
READ: Final = 727
#: Each seventh of these is sent.
STEP: Final = 7


@pytest.fixture(scope="module")
def dirty() -> list[DirtyText]:
    """The texts that are read as the one name that they mean."""
    single = [one for one in read_dirty_texts().texts if len(one.names) == 1]
    return [one for one in single if (best := read_best(one.text)) and best.name.text.lower() == one.names[0].lower()]


@pytest.fixture
async def proxy(dirty: list[DirtyText]) -> AsyncIterator[Proxy]:
    async with Proxy() as started:
        for one in dirty[::STEP]:
            started.upstream.put(one.names[0], url="https://example.org/")
        yield started


def test_no_fewer_texts_are_read_and_their_names_are_found(dirty: list[DirtyText]) -> None:
    assert len(dirty) >= READ
    found = [(one.text, {found.name.text.lower() for found in find_names(one.text)}) for one in dirty]
    assert found == [(one.text, {one.names[0].lower()}) for one in dirty]


async def form_leads_to(proxy: Proxy, text: str) -> str:
    """The name that the form resolves at once, or that its page has a button for."""
    got = await proxy.post("/", f"hdl={quote(text)}&noredirect=1", accept=BROWSER)
    button = re.search(r'class="button" href="/([^"]+)"', got.text)
    shown = re.search(r'<p class="name"><bdi translate="no">([^<]+)</bdi>', got.text)
    assert got.status == 200, (got.status, text)
    return unescape(unquote(button[1]) if button else shown[1] if shown else "").lower()


async def test_every_reader_of_one_text_finds_the_same_name(proxy: Proxy, dirty: list[DirtyText]) -> None:
    for text, name in ((one.text, one.names[0].lower()) for one in dirty[::STEP]):
        extracted = await proxy.post("/api/extract?output=json", text, content_type="text/plain")
        looked_up = await proxy.post("/api/resolve?extract=true&output=json", text, content_type="text/plain")
        assert {one["doi"].lower() for one in extracted.json} == {name}, text
        assert {(one["doi"].lower(), one["verdict"]) for one in looked_up.json} == {(name, "resolved")}, text
        assert await form_leads_to(proxy, quote(text)) == name, text


async def test_every_reader_of_a_list_finds_the_same_names(
    proxy: Proxy, dirty: list[DirtyText], capsys: pytest.CaptureFixture[str]
) -> None:
    texts, names = [quote(one.text) for one in dirty[::STEP]], [one.names[0].lower() for one in dirty[::STEP]]
    for path in ("/api/parse", "/api/resolve?suggest=true"):
        listed = await proxy.post(path, json.dumps(texts), content_type="application/json")
        assert [row["best"]["doi"].lower() for row in listed.json] == names
    main(["parse", "--format", "json", *texts])
    assert [json.loads(line)["best"]["doi"].lower() for line in capsys.readouterr().out.splitlines()] == names
    async with running_tools() as desk:
        parsed = await desk.call("parse", texts=texts)
    assert [row["best"]["doi"].lower() for row in parsed["texts"]] == names
