"""`doi-proxy mcp` over standard input and output, with the SDK's own client and without it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator
from mcp import Client, StdioServerParameters

from doi_proxy.commands.main import main
from tests.fake_upstream import FakeUpstream

# Its streams are pipes of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

URL = "http://www.doi.org/hb.html"
ROOT: Final = Path(__file__).resolve().parents[3]
#: For a start or an end of a process, in seconds.
DEADLINE: Final = 60


def environment() -> dict[str, str]:
    """The environment of this process without settings of the proxy."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DOI_PROXY_")}


def arguments(upstream_url: str, *more: str, store_url: str = "memory:") -> list[str]:
    free = ("--upstream-rate", "1000000", "--upstream-burst", "1000000")
    return ["-m", "doi_proxy", "mcp", "--upstream-url", upstream_url, "--store-url", store_url, *free, *more]


def stdio(upstream_url: str, *more: str, store_url: str = "memory:") -> StdioServerParameters:
    """The process that a client of the SDK starts."""
    return StdioServerParameters(
        command=sys.executable,
        args=arguments(upstream_url, *more, store_url=store_url),
        cwd=ROOT,
        env=environment(),
    )


@asynccontextmanager
async def started(*words: str, stdin: int = DEVNULL, stdout: int = DEVNULL) -> AsyncIterator[Process]:
    """A process with these arguments of Python. It is killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=ROOT, env=environment(), stdin=stdin, stdout=stdout, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as upstream:
        upstream.put("10.1000", url="http://prefix.example/")
        upstream.put("10.1000/182", url=URL)
        yield upstream


@pytest.mark.process
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_finds_the_tools_and_checks_a_list(upstream: FakeUpstream, mode: str) -> None:
    async with Client(stdio(upstream.url), mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        [prompt] = (await client.list_prompts()).prompts
        asked = await client.get_prompt(prompt.name, {"references": "Doe 10.1000/182"})
        assert getattr(asked.messages[0].content, "text", "").endswith("Doe 10.1000/182")
        assert set(tools) == {"parse", "resolve", "check_list"}
        for tool in tools.values():
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint
            assert tool.annotations.idempotent_hint
            assert not tool.annotations.destructive_hint
        calls: list[tuple[str, dict[str, Any]]] = [
            ("parse", {"texts": ["doi:10.1000/182", "x"]}),
            ("resolve", {"name": "https://doi.org/10.1000/182"}),
            ("check_list", {"lines": ["Smith. https://doi.org/10.1000/182.", "10.1000/none", "x"]}),
        ]
        reports: list[float] = []

        async def watch(progress: float, total: float | None, message: str | None) -> None:
            reports.append(progress)

        for name, given in calls:
            Draft202012Validator(tools[name].input_schema).validate(given)
            result = await client.call_tool(name, given, progress_callback=watch)
            assert not result.is_error
            Draft202012Validator(tools[name].output_schema or False).validate(result.structured_content)
            assert json.loads(getattr(result.content[0], "text", "")) == result.structured_content
    assert result.structured_content is not None
    verdicts = [line["verdict"] for line in result.structured_content["lines"]]
    assert verdicts == ["resolved", "not_found", "not_a_doi"]
    assert reports == sorted(reports)


@pytest.mark.process
async def test_hostile_arguments_are_answered_in_words(upstream: FakeUpstream) -> None:
    async with Client(stdio(upstream.url), mode="legacy") as client:
        many = await client.call_tool("check_list", {"lines": ["10.1000/182"] * 10_000})
        assert many.is_error
        assert "at most 500" in getattr(many.content[0], "text", "")
        for text in ("x" * 100_000, "\x00\x1b[2J\u202e", "10.1000/" + "\u0301" * 8_000, "\n" * 4_000):
            result = await client.call_tool("check_list", {"lines": [text, "10.1000/182"]})
            assert result.structured_content is not None
            assert result.structured_content["lines"][1]["verdict"] == "resolved"
            assert "\x1b" not in str(result.content)


@pytest.mark.process
async def test_the_store_is_that_of_a_running_proxy(upstream: FakeUpstream, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.sqlite3"
    for _ in range(2):
        async with Client(stdio(upstream.url, store_url=store), mode="legacy") as client:
            result = await client.call_tool("check_list", {"lines": ["10.1000/182"]})
            assert result.structured_content is not None
            assert result.structured_content["lines"][0]["verdict"] == "resolved"
    assert upstream.queries("10.1000/182") == 1


async def send(process: Process, *messages: dict[str, Any]) -> None:
    assert process.stdin is not None
    for message in messages:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    await process.stdin.drain()


def call(number: int, tool: str, given: dict[str, Any]) -> dict[str, Any]:
    return {"id": number, "method": "tools/call", "params": {"name": tool, "arguments": given}}


HANDSHAKE: list[dict[str, Any]] = [
    {
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
]


async def answer(process: Process, number: int) -> dict[str, Any]:
    assert process.stdout is not None
    while True:
        line = await asyncio.wait_for(process.stdout.readline(), DEADLINE)
        message: dict[str, Any] = json.loads(line)
        if message.get("id") == number:
            return message


@pytest.mark.process
async def test_lines_that_are_not_messages_are_left_out(upstream: FakeUpstream) -> None:
    async with started(*arguments(upstream.url), stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"garbage\n\xff\xfe\n[1]\n" + b"[" * 100_000 + b"\n" + b"x" * 5_000_000 + b"\n")
        await send(process, *HANDSHAKE, call(1, "parse", {"texts": ["10.1000/182"]}))
        assert (await answer(process, 1))["result"]["structuredContent"]["texts"][0]["kind"] == "doi"


@pytest.mark.process
async def test_the_process_ends_when_the_client_leaves_in_the_middle(upstream: FakeUpstream) -> None:
    upstream.hold("10.1000/0")
    async with started(*arguments(upstream.url), stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        names = [f"10.1000/{number}" for number in range(500)]
        await send(process, *HANDSHAKE, call(1, "check_list", {"lines": names}))
        await upstream.arrived("10.1000/0")
        process.stdin.close()
        process.stdout._transport.close()  # type: ignore[attr-defined] # StreamReader has no method for this
        log = (await asyncio.wait_for(process.stderr.read(), DEADLINE)).decode()
        assert await process.wait() == 0
    assert "Traceback" not in log
    assert upstream.queries() < 500


@pytest.mark.process
async def test_a_signal_ends_the_process_while_it_waits(upstream: FakeUpstream) -> None:
    async with started(*arguments(upstream.url), stdin=PIPE, stdout=PIPE) as process:
        assert process.stderr is not None
        await send(process, *HANDSHAKE)
        await answer(process, 0)
        process.send_signal(signal.SIGINT)
        log = (await asyncio.wait_for(process.stderr.read(), DEADLINE)).decode()
        assert await process.wait() == 0
    assert "Traceback" not in log


def test_without_the_extra_one_line_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert main(["mcp"]) == 2
    line = "the package mcp, which is not installed; run: pip install 'doi-proxy[assistants]'\n"
    assert capsys.readouterr().err == f"doi-proxy: the feature assistants needs {line}"
