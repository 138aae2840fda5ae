"""`doi-proxy status` in a terminal: words, numbers, events, and nothing that a terminal obeys."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from doi_proxy.errors import DoiProxyError
from doi_proxy.features.status.command import show_status
from tests.web.proxy import Proxy

NAME: Final = "10.5555/known"


class Client:
    """A proxy with this status."""

    label = "http://proxy.example"

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def status(self) -> dict[str, Any]:
        return self._document


def show(document: dict[str, Any], *, as_json: bool = False) -> str:
    client: Any = Client(document)
    return show_status(client, as_json=as_json)


@pytest.fixture
async def document(anyio_backend: str) -> dict[str, Any]:
    """The status of a proxy that answered a name, with a problem and an outage put in."""
    async with Proxy(status_networks="0.0.0.0/0, ::/0") as proxy:
        proxy.upstream.put(NAME, url="http://here.example/")
        await proxy.get(f"/{NAME}")
        found: dict[str, Any] = (await proxy.get("/status")).json
    now = found["started"]
    found["summary"]["problems"] = ["DoiProxyServesStale"]
    found["events"] = [{"kind": "outage", "at": now - 600, "until": now - 300, "detail": "doi.org", "count": 1}]
    return found


@pytest.mark.anyio
async def test_it_prints_the_sentence_what_is_wrong_four_numbers_and_the_events(document: dict[str, Any]) -> None:
    label, sentence, problem, _, numbers, *_, event = show(document).splitlines()
    assert (label, sentence[:28]) == ("http://proxy.example", "Working. 127.0.0.1 answers. ")
    assert problem == "  Many answers are past their TTL  DoiProxyServesStale"
    assert re.match("[0-9.]+ requests per second   0% from the cache   0% without an answer   .+ query", numbers)
    assert event.endswith(" UTC  doi.org gave no usable answer for 5 min")


@pytest.mark.anyio
async def test_nothing_of_the_proxy_reaches_the_terminal_as_a_control(document: dict[str, Any]) -> None:
    hostile = json.loads(json.dumps(document).replace("doi.org", "\\u001b[2J\\u202e").replace("127.0.0.1", "\\u0007"))
    hostile["events"][0]["kind"], hostile["events"][0]["cause"] = "store", "\x1b]0;x\x07"
    hostile["summary"]["problems"] = ["\x9b31m"]
    assert [one for one in show(hostile) if not one.isprintable() and one != "\n"] == []


@pytest.mark.anyio
async def test_another_status_is_an_error_and_json_is_what_arrived(document: dict[str, Any]) -> None:
    with pytest.raises(DoiProxyError, match="is of another release"):
        show({"version": 7})
    assert json.loads(show(document, as_json=True)) == document
