"""`doi-proxy check --running`: what a reload and what a restart of the running proxy would change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.main import main
from doi_proxy.main import create
from doi_proxy.system.options import ENV_PREFIX
from tests.features.listening import listening

# The command is synchronous: it runs in a thread, over sockets of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(autouse=True)
def environment(plain_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the running proxy, and no others."""
    monkeypatch.setenv(f"{ENV_PREFIX}ADMIN_TOKEN", TOKEN)
    monkeypatch.setenv(f"{ENV_PREFIX}STORE_URL", "memory:")
    monkeypatch.setenv(f"{ENV_PREFIX}MODE", "sealed")


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    async with listening(create(Settings(store_url="memory:", mode="sealed", admin_token=TOKEN)), lifespan="on") as url:
        yield url


async def check(server: str, *arguments: str) -> int:
    return await asyncio.to_thread(main, ["check", "--running", "--server", server, *arguments])


async def test_settings_that_are_in_force_differ_in_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving() as server:
        assert await check(server) == 0
    assert "runs with these settings." in capsys.readouterr().out


async def test_what_a_reload_and_what_a_restart_would_change_is_said_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "proxy.toml"
    path.write_text('[upstream]\nrate = 3\n[admin]\ntoken = "another-token-of-ours"\n[server]\nport = 8123\n')
    async with serving() as server:
        assert await check(server, "--config", str(path), "--cache-grace", "7d") == 1
        shown = capsys.readouterr().out
        assert await check(server, "--config", str(path), "--format", "json") == 1
    lines = shown.splitlines()
    reload, restart = (lines.index(line) for line in lines if line.startswith("a re"))
    assert lines[reload + 1 : restart] == [
        f"  upstream_rate: '10' -> '3' ({path}, line 2: upstream_rate)",
        "  upstream_burst: '50' -> '15' (default)",
    ]
    assert [line.split(":")[0].strip() for line in lines[restart + 1 : -1]] == ["port", "cache_grace"]
    assert "token" not in shown
    found = {each["setting"]: each for each in json.loads(capsys.readouterr().out)["differences"]}
    assert found["port"] == {
        "setting": "port",
        "running": "8000",
        "new": "8123",
        "source": f"{path}, line 6: port",
        "step": "restart",
    }


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", "its answer is JSON, but not an object: this is not a doi-proxy, or it has no admin API"),
        (b"{}", "its answer has no setting of this release; check the URL"),
    ],
)
async def test_whatever_listens_there_does_not_get_the_token(
    capsys: pytest.CaptureFixture[str], body: bytes, words: str
) -> None:
    got = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.extend(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await check(f"http://127.0.0.1:{port}") == 1
    assert b"/admin/settings" in got and TOKEN.encode() not in got
    assert words in capsys.readouterr().err
