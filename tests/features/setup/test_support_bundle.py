"""`doi-proxy check --bundle`: what is in it, and that no reader and no secret is."""

from __future__ import annotations

import asyncio
import json
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.main import main
from doi_proxy.main import create
from doi_proxy.system.options import ENV_PREFIX
from tests.accepting import accept_into, close_server
from tests.fake_upstream import FakeUpstream
from tests.features.listening import listening

# The commands are synchronous: they run in a thread, over sockets of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

TOKEN: Final = "correct-horse-battery-staple"
NAME: Final = "10.5555/marked-name"
READER: Final = "198.51.100.77"
#: What no bundle may have: readers and secrets.
FORBIDDEN: Final = ("marked-name", "MARKED-NAME", "198.51.100", "marked-agent", TOKEN, "marked-password")


@pytest.fixture(autouse=True)
def token(plain_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment with the token alone."""
    monkeypatch.setenv(f"{ENV_PREFIX}ADMIN_TOKEN", TOKEN)


@asynccontextmanager
async def serving(store: str) -> AsyncIterator[tuple[int, str]]:
    """A proxy with a store on a free port. Its port, and the upstream's URL with a password."""
    async with FakeUpstream() as upstream:
        upstream.put(NAME, url="http://here.example/")
        url = upstream.url.replace("http://", "http://user:marked-password@")
        settings = Settings(store_url=store, upstream_url=url, admin_token=TOKEN, access_log="text", privacy_level=0)
        async with listening(create(settings), lifespan="on", forwarded_allow_ips="*") as server:
            yield int(server.rpartition(":")[2]), url


def read_archive(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            entry.name.removeprefix("doi-proxy-support/"): found.read().decode()
            for entry in archive
            if (found := archive.extractfile(entry)) is not None
        }


def visit(port: int, name: str) -> None:
    """A marked reader asks for a name."""
    request = Request(
        f"http://127.0.0.1:{port}/api/handles/{name}",
        headers={"X-Forwarded-For": READER, "User-Agent": "marked-agent", "Referer": f"https://{READER}/"},
    )
    with urlopen(request, timeout=10) as answer:
        assert answer.status == 200


async def test_it_has_the_state_and_neither_readers_nor_secrets(tmp_path: Path) -> None:
    store, output = f"sqlite:///{tmp_path}/store.sqlite3", tmp_path / "bundle.tar.gz"
    async with serving(store) as (port, url):
        for _ in range(2):
            await asyncio.to_thread(visit, port, NAME)
        flags = ["--port", str(port), "--store-url", store, "--upstream-url", url, "--bundle", str(output)]
        assert await asyncio.to_thread(main, ["check", *flags]) == 0
    parts = read_archive(output)
    expected = {
        "versions.json",
        "settings.json",
        "check.json",
        "store.json",
        "readyz.json",
        "status.json",
        "metrics.txt",
    }
    assert set(parts) == expected | {"README.txt"}
    assert json.loads(parts["status.json"])["requests"]["200"] >= 2
    assert json.loads(parts["store.json"])["healthy"] is True
    assert "doi_proxy_http_requests_total" in parts["metrics.txt"]
    settings = json.loads(parts["settings.json"])
    assert settings["admin_token"]["value"] == "***"
    assert "***@127.0.0.1" in settings["upstream_url"]["value"]
    assert {word: name for name, text in parts.items() for word in FORBIDDEN if word in text} == {}
    assert output.stat().st_mode & 0o077 == 0


def test_without_a_proxy_and_a_store_it_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "bundle.tar.gz"
    flags = ["--port", "9", "--store-url", f"sqlite:///{tmp_path}/none.sqlite3", "--bundle", str(output)]
    assert main(["check", *flags]) == 0
    parts = read_archive(output)
    missing = {name for name in parts if name.endswith(".missing")}
    assert missing == {f"{name}.missing" for name in ("store.json", "readyz.json", "status.json", "metrics.txt")}
    assert "does not exist" in parts["store.json.missing"]
    assert main(["check", *flags]) == 1
    assert "this exists, and no file is replaced; name another file" in capsys.readouterr().err


async def test_a_stranger_on_the_port_does_not_get_the_token(tmp_path: Path) -> None:
    heads, tasks, writers = list[bytes](), set[asyncio.Task[None]](), list[asyncio.StreamWriter]()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(
            b'HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm="router"\r\nContent-Length: 0\r\n\r\n'
        )

    server = await asyncio.start_server(accept_into(tasks, writers, refuse), "127.0.0.1", 0)
    output, port = tmp_path / "bundle.tar.gz", server.sockets[0].getsockname()[1]
    flags = ["--server", f"http://127.0.0.1:{port}", "--store-url", "memory:", "--bundle", str(output)]
    assert await asyncio.to_thread(main, ["check", *flags]) == 0
    await close_server(server, tasks, writers)
    assert len(heads) == 3
    assert not any(TOKEN.encode() in head for head in heads)


async def test_a_server_that_answers_for_ever_ends_no_fetch_later_than_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doi_proxy.features.setup.support_bundle._DEADLINE", 0.5)
    ended, tasks, writers = asyncio.Event(), set[asyncio.Task[None]](), list[asyncio.StreamWriter]()

    async def trickle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Each byte comes long before the timeout of a wait for bytes.
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not ended.is_set() and not writer.is_closing():
            writer.write(b"x")
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 0.05)

    server = await asyncio.start_server(accept_into(tasks, writers, trickle), "127.0.0.1", 0)
    output, port = tmp_path / "bundle.tar.gz", server.sockets[0].getsockname()[1]
    flags = ["--server", f"http://127.0.0.1:{port}", "--store-url", "memory:", "--bundle", str(output)]
    assert await asyncio.to_thread(main, ["check", *flags]) == 0
    ended.set()
    await close_server(server, tasks, writers)
    parts = read_archive(output)
    assert {"readyz.json.missing", "status.json.missing", "metrics.txt.missing"} <= parts.keys()


@pytest.mark.parametrize(
    "line", [f"{READER}/99", f"'{READER}',", "2001:db8:0:77::1/200", "[2001:DB8::77]", "2001:db8:77::1: x"]
)
def test_a_finding_about_a_denied_client_has_no_address(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = tmp_path / "denied.txt"
    denied.write_text(f"\n{line}\n", "utf-8")
    monkeypatch.setenv(f"{ENV_PREFIX}CLIENT_DENY_FILE", str(denied))
    assert main(["check", "--bundle", str(tmp_path / "bundle.tar.gz"), "--server", "http://127.0.0.1:9"]) == 0
    found = read_archive(tmp_path / "bundle.tar.gz")["check.json"]
    assert f"{denied}:2:1: " in found and "is not a network" in found
    found = found.replace(str(denied), "")
    assert "198.51" not in found and "77" not in found and "2001:" not in found.lower().replace("2001:db8::/32", "")
