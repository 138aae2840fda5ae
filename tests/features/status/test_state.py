"""`/state`: the state of the service for readers, and its feed."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

import pytest

from app.features.status.events import Event
from app.features.status.state import find_interruptions
from tests.web.proxy import running

pytestmark = pytest.mark.anyio

_ATOM: Final = "{http://www.w3.org/2005/Atom}"


async def test_readers_learn_that_it_works_and_of_an_interruption() -> None:
    async with running(upstream_breaker_failures=1, public_url="https://doi.library.example/go") as proxy:
        assert "Yes. It has just started." in (await proxy.get("/state")).text
        proxy.upstream.put("10.5555/known", url="http://here.example/")
        await proxy.get("/10.5555/known")
        assert "Ja. Links öffnen sich wie gewohnt." in (await proxy.get("/state", accept_language="de")).text
        proxy.upstream.fault("10.5555/new", "status", status=500)
        await proxy.get("/10.5555/new")
        shown = await proxy.get("/state")
        assert "Partly. The DOI system has not answered since " in shown.text
        assert "127.0.0.1" not in shown.text
        assert shown["cache-control"] == "max-age=60"


async def test_the_feed_is_atom_whose_entries_keep_their_identifiers() -> None:
    async with running(public_url="https://doi.library.example/go") as proxy:
        feeds = [await proxy.get("/state.atom", accept_language=language) for language in ("en", "fr")]
        assert feeds[0]["content-type"] == "application/atom+xml;charset=utf-8"
        first, second = (ElementTree.fromstring(feed.text) for feed in feeds)
        assert first.findtext(f"{_ATOM}title") == "Does this resolver work?"
        assert [one.tag for one in first][:4] == [_ATOM + name for name in ("title", "id", "updated", "author")]
        assert first.findtext(f"{_ATOM}id") == second.findtext(f"{_ATOM}id")
        links = [one.get("href") for one in first.findall(f"{_ATOM}link")]
        assert links == ["https://doi.library.example/go/state.atom", "https://doi.library.example/go/state"]


async def test_only_what_no_upstream_answered_is_an_interruption() -> None:
    one, other = Event("outage", 100, 200, "a"), Event("outage", 150, 300, "b")
    assert find_interruptions([one, other], ["a"]) == ((100, 200),)
    assert find_interruptions([one, other], ["a", "b"]) == ((150, 200),)
    assert find_interruptions([one, Event("outage", 150, None, "b")], ["b"]) == ((150, None),)
    assert find_interruptions([one, Event("reload", 1)], []) == ()
