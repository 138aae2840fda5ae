"""`doi-proxy check --ready`: only an answer of a doi-proxy counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from doi_proxy.commands.main import main
from tests.features.listening import listening

# The command is synchronous: it runs in a thread, over sockets of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]


@pytest.fixture(autouse=True)
def environment(plain_environment: None) -> None:
    """No settings of the user who runs the tests."""


async def check(body: bytes) -> int:
    """The exit status for a program that answers every path with 200 and a body."""

    async def answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async with listening(answer, lifespan="off") as url:
        return await asyncio.to_thread(main, ["check", "--ready", "--server", url])


async def test_an_answer_that_says_ready_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert await check(b'{"ready": true, "detail": {}}') == 0
    assert capsys.readouterr().out == '{"ready": true, "detail": {}}\n'


@pytest.mark.parametrize(
    "body",
    [b"<!doctype html>", b"[]", b"{}", b'{"ready": true}', b'{"ready": false, "detail": {}}', b"[" * 60_000],
    ids=["page", "list", "object", "ready alone", "not ready", "deep"],
)
async def test_a_success_of_another_program_is_not_ready(body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    assert await check(body) == 1
    assert "its answer does not say that it is ready; this is not a doi-proxy" in capsys.readouterr().err
