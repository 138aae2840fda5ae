"""`doi-proxy status` in a terminal: words, a plot, colours that only add, and nothing that a terminal obeys."""

from __future__ import annotations

import json
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


def show(document: dict[str, Any], *, has_colour: bool = False, as_json: bool = False) -> str:
    client: Any = Client(document)
    return show_status(client, as_json=as_json, has_colour=has_colour)


@pytest.fixture
async def document(anyio_backend: str) -> dict[str, Any]:
    """The status of a proxy that answered a name, with an hour of history and an outage put in."""
    async with Proxy(status_networks="0.0.0.0/0, ::/0") as proxy:
        proxy.upstream.put(NAME, url="http://here.example/")
        await proxy.get(f"/{NAME}")
        found: dict[str, Any] = (await proxy.get("/status")).json
    now = found["started"]
    counts = {"requests": 9, "questions": 1, "stale": 0, "answers": 900, "hits": 900}
    found["history"] = [
        {"start": now - now % 300 - 300 * number, **counts, "unverified": 90 * (number < 3), "down": 300 * (number < 3)}
        for number in reversed(range(12))
    ]
    found["events"] = [{"kind": "outage", "at": now - 600, "until": now - 300, "detail": "doi.org", "count": 1}]
    return found


@pytest.mark.anyio
async def test_it_prints_words_a_plot_and_events(document: dict[str, Any]) -> None:
    text = show(document)
    assert text.startswith("http://proxy.example\nWorking. 127.0.0.1 answers. ")
    assert "Last 24 hours, at most 3" in text
    assert " × an upstream was down" in text
    assert "doi.org gave no usable answer for 5 min" in text
    assert "        1  from the upstream, new" in text
    assert "\x1b" not in text


@pytest.mark.anyio
async def test_colours_only_add(document: dict[str, Any]) -> None:
    coloured = show(document, has_colour=True)
    assert "\x1b[31m" in coloured
    for sequence in ("\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[0m"):
        coloured = coloured.replace(sequence, "")
    assert [line.rstrip() for line in coloured.splitlines()] == show(document).splitlines()


@pytest.mark.anyio
async def test_nothing_of_the_proxy_reaches_the_terminal_as_a_control(document: dict[str, Any]) -> None:
    hostile = json.loads(json.dumps(document).replace("doi.org", "\\u001b[2J\\u202e").replace("127.0.0.1", "\\u0007"))
    hostile["requests"] = {"\x1b]0;x\x07": 1}
    hostile["summary"]["problems"] = ["\x9b31m"]
    assert [one for one in show(hostile) if not one.isprintable() and one != "\n"] == []


@pytest.mark.anyio
async def test_another_status_is_an_error_and_json_is_what_arrived(document: dict[str, Any]) -> None:
    with pytest.raises(DoiProxyError, match="is of another release"):
        show({"version": 7})
    assert json.loads(show(document, as_json=True)) == document
