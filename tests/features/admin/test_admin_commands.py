"""`doi-proxy status`, and `doi-proxy cache show|refresh|purge` on a store and on a running proxy."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.main import main
from doi_proxy.main import create
from doi_proxy.system.options import ENV_PREFIX
from tests.cache.entries import entry
from tests.clock import Clock
from tests.fake_upstream import FakeUpstream
from tests.features.listening import listening
from tests.features.sqlite.sqlite_stores import fill, opened

# The commands are synchronous: they run in a thread, over sockets of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

NAME = "10.1000/182"
TOKEN = "correct-horse-battery-staple"


@pytest.fixture(autouse=True)
def token(plain_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment with the token alone."""
    monkeypatch.setenv(f"{ENV_PREFIX}ADMIN_TOKEN", TOKEN)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[str, FakeUpstream]]:
    """A proxy with the store `memory:` on a free port."""
    async with FakeUpstream() as upstream:
        upstream.put(NAME, url="http://here.example/")
        settings = Settings(store_url="memory:", upstream_url=upstream.url, admin_token=TOKEN)
        async with listening(create(settings), lifespan="on") as url:
            yield url, upstream


async def run(*arguments: str) -> int:
    """Run a command in a thread, while the proxy answers in this one."""
    return await asyncio.to_thread(main, arguments)


async def test_a_proxy_without_a_store_is_reached_over_http(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving() as (server, upstream):
        assert await run("cache", "show", "--server", server, NAME) == 1
        assert "no entry" in capsys.readouterr().err
        assert await run("cache", "refresh", "--server", server, NAME) == 0
        assert capsys.readouterr().out == f"{NAME}: refreshed\n"
        assert await run("cache", "show", "--server", server, f"https://doi.org/{NAME}") == 0
        assert json.loads(capsys.readouterr().out)["state"] == "fresh"
        upstream.put(NAME, url="http://here.example/\u009b31m\u202e")
        assert await run("cache", "refresh", "--server", server, NAME) == 0
        capsys.readouterr()
        assert await run("cache", "show", "--server", server, NAME) == 0
        shown = capsys.readouterr().out
        assert (shown.rstrip("\n").isprintable(), r"\u009b31m\u202e" in shown) == (True, True)
        assert await run("cache", "refresh", "--server", server, "--prefix", "10.1000", "--limit", "7") == 0
        assert capsys.readouterr().out == "refreshed 1, failed 0, left out 0\n"
        assert await run("cache", "purge", "--server", server, "--dry-run", "--all") == 0
        assert capsys.readouterr().out == "would purge 1\n"
        assert await run("cache", "purge", "--server", server, "--soft", "--prefix", "10.1000") == 0
        assert capsys.readouterr().out == "made stale 1\n"
        assert await run("status", "--server", server, "--format", "json") == 0
        assert json.loads(capsys.readouterr().out)["store"]["memory_entries"] == 1


async def test_a_refresh_goes_through_the_running_service_if_it_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as (server, upstream):
        monkeypatch.setenv(f"{ENV_PREFIX}MANAGEMENT_LISTEN", server.removeprefix("http://"))
        assert await run("cache", "refresh", NAME) == 0
        assert (capsys.readouterr().out, upstream.queries(NAME)) == (f"{NAME}: refreshed\n", 1)
        assert await run("cache", "refresh", "--prefix", "10.1000", "--limit", "7") == 0
    # Alone, the command needs the store of the service.
    assert await run("cache", "refresh", NAME, "--store-url", "memory:") == 2


async def test_a_wrong_token_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{ENV_PREFIX}ADMIN_TOKEN", "wrong-wrong-wrong-wrong")
    async with serving() as (server, _):
        assert await run("cache", "refresh", "--server", server, NAME) == 1
    error = capsys.readouterr().err
    assert "the token is wrong" in error
    assert error.count("\n") == 1


async def test_a_server_that_does_not_answer_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("status", "--server", "http://127.0.0.1:9") == 1
    assert capsys.readouterr().err.count("\n") == 1


async def test_on_a_store_names_are_refreshed_shown_and_expired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ("--store-url", f"sqlite:///{tmp_path}/store.sqlite3")
    async with FakeUpstream() as upstream:
        upstream.put(NAME, url="http://here.example/")
        assert await run("cache", "refresh", *store, "--upstream-url", upstream.url, NAME) == 2
        assert "this file does not exist" in capsys.readouterr().err
        await fill(tmp_path / "store.sqlite3", Clock(time.time()), 0)
        assert await run("cache", "refresh", *store, "--upstream-url", upstream.url, NAME) == 0
        assert capsys.readouterr().out == f"{NAME}: refreshed\n"
        assert await run("cache", "refresh", *store, "--upstream-url", upstream.url, "--prefix", "10.1000") == 0
        assert capsys.readouterr().out == "refreshed 1, failed 0, left out 0\n"
    assert await run("cache", "purge", *store, "--soft", NAME) == 0
    capsys.readouterr()
    assert await run("cache", "show", *store, NAME) == 0
    entry = json.loads(capsys.readouterr().out)
    assert (entry["doi"], entry["state"], entry["tier"]) == (NAME, "stale", "store")


@pytest.mark.parametrize("name", ["10.1000/../x", "10.1000/a%2541 b+c", "10.1000/x?y#z&doi=1"])
async def test_a_name_that_is_not_plain_in_a_url_is_shown_and_purged(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.sqlite3"
    key = unquote(name).upper()
    async with opened(path, Clock(time.time())) as store:
        await store.put(entry(key, fetched_at=time.time()))
        await store.flush()
    assert await run("cache", "show", "--store-url", f"sqlite:///{path}", name) == 0
    assert json.loads(capsys.readouterr().out)["doi"] == key
    assert await run("cache", "purge", "--store-url", f"sqlite:///{path}", name, "10.1000/none") == 0
    assert capsys.readouterr() == ("purged 1\n", "10.1000/none: no entry\n")
    assert await run("cache", "show", "--store-url", f"sqlite:///{path}", name) == 1
    assert "The cache has no entry for" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), (NAME, "--prefix", "10.1000"), ("--prefix", "10.1000", "--limit", "1001")])
async def test_a_refresh_needs_names_or_one_prefix_within_its_limit(arguments: tuple[str, ...]) -> None:
    assert await run("cache", "refresh", "--server", "http://127.0.0.1:9", *arguments) == 2


async def test_memory_is_no_store_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("cache", "show", "--store-url", "memory:", NAME) == 2
    assert "--server" in capsys.readouterr().err
