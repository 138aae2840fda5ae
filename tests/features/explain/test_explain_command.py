"""`doi-proxy explain`: what it prints without a running proxy."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Final

import pytest

from doi_proxy.assembly.core import open_cache
from doi_proxy.assembly.settings import Settings
from doi_proxy.cache.entry import Entry
from doi_proxy.commands.main import main
from doi_proxy.features.explain.command import write_report
from handle_protocol.referral import Answer, ResponseCode
from tests.proxy_client.test_exchange import standing

#: Nothing listens there.
NOWHERE: Final = ["--upstream-url", "http://127.0.0.1:9", "--upstream-contact", "mailto:library@example.org"]


def fill(tmp_path: Path) -> list[str]:
    """A store with one stale record. Returns the flags that name it."""
    url = f"sqlite:///{tmp_path}/store.sqlite3"
    value = {
        "index": 1,
        "type": "URL",
        "data": {"format": "string", "value": "https://target.example/known"},
        "ttl": 60,
    }
    answer = Answer(ResponseCode.SUCCESS, json.dumps([value]).encode())

    async def put() -> None:
        cache = open_cache(Settings(store_url=url))
        now = time.time()
        await cache.put(Entry("10.5555/KNOWN", answer, now - 100, now - 40, now + 3_600))
        await cache.flush()
        await cache.close()

    asyncio.run(put())
    return ["--store-url", url, *NOWHERE]


def test_the_settings_and_the_store_explain_without_a_proxy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fill(tmp_path)
    capsys.readouterr()
    assert main(["explain", "doi:10.5555/known", "--format", "json", *store]) == 0
    report = json.loads(capsys.readouterr().out)
    steps = {one["decision"]: one for one in report["decisions"]}
    assert report["doi"] == "10.5555/known"
    assert steps["cache"]["reason"].startswith("In the store: a record, stale, fetched ")
    assert (report["status"], report["location"]) == (302, "https://target.example/known")
    assert steps["upstream"]["result"] == "queried"
    assert steps["upstream"]["settings"]["upstream_url"] == "http://127.0.0.1:9"
    # An instance that has ended, with the admin API at an address of its own.
    ended = ["--management-listen", f"unix:{tmp_path}/admin.sock"]
    assert main(["explain", "doi:10.5555/known", "--format", "json", *ended, *store]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == 302


def test_the_text_has_a_paragraph_for_each_decision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fill(tmp_path)
    capsys.readouterr()
    assert main(["explain", "10.5555/unknown", "--client", "192.0.2.7", *store]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("10.5555/unknown for 192.0.2.7: the upstream decides\n\nadmitted       yes\n")
    assert printed.err.startswith("By the settings and the store.")
    assert "\ntarget         open\n" in printed.out
    # A percent sign of the name, as a URL has it.
    assert main(["explain", "10.5555/a%2541", *store]) == 0
    assert capsys.readouterr().out.startswith("10.5555/a%41 for ")


def test_a_wrong_address_and_a_missing_store_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fill(tmp_path)
    assert main(["explain", "10.5555/known", "--client", "nobody", *store]) == 1
    assert "'nobody' is not an IP address." in capsys.readouterr().err
    assert main(["explain", "10.5555/" + "a" * 100_000, *store]) == 2
    assert len(capsys.readouterr().err) < 300
    assert main(["explain", "10.5555/known", "--store-url", f"sqlite:///{tmp_path}/none.sqlite3"]) == 2
    assert "this file does not exist" in capsys.readouterr().err


@pytest.mark.anyio
@pytest.mark.real_time
async def test_another_program_at_the_address_of_the_proxy_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    async with standing(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as stand:
        url = str(stand.server.url)
        assert await asyncio.to_thread(main, ["explain", "10.5555/known", "--server", url]) == 1
    assert capsys.readouterr().err == (
        f"doi-proxy: {url}: its answer is not a report of this release; check the URL, or use the doi-proxy of that "
        "release\n"
    )


def test_the_store_is_not_opened_for_writing(tmp_path: Path) -> None:
    store = fill(tmp_path)
    file = tmp_path / "store.sqlite3"
    file.chmod(0o400)
    for beside in tmp_path.glob("store.sqlite3?*"):
        beside.unlink()
    before = file.read_bytes()
    assert main(["explain", "10.5555/known", *store]) == 0
    assert {one.name for one in tmp_path.iterdir()} == {"store.sqlite3"}
    assert file.read_bytes() == before


def test_long_reasons_are_wrapped_below_their_decision() -> None:
    step = {"decision": "cache", "result": "hit", "reason": "word " * 30, "settings": {"store_url": None}}
    text = write_report({"doi": "10.1/a", "client": "::1", "status": 200, "location": None, "decisions": [step]}, 60)
    assert max(map(len, text.splitlines())) <= 60
    assert text.endswith("\n               store_url = –")
