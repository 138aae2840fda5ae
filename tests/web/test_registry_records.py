"""What the answers say about a record from a registration agency's file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import Clock
from tests.registry_records import FILE_DATE, write_registry
from tests.web.proxy import Proxy

pytestmark = pytest.mark.anyio

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
