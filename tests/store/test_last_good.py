"""A start with a broken file of an operator uses the last good one, loudly. A check still fails."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.limits.feature import Limits
from doi_proxy.features.local_records.feature import LocalRecordFiles
from doi_proxy.features.local_records.files import record_files
from doi_proxy.store.kept_file import KeptFile
from doi_proxy.system.check import Inspection
from tests.clock import Clock
from tests.web.proxy import Proxy

# The commands are synchronous: they run in a thread, over sockets of the system.
pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

RECORD = '[[record]]\ndoi = "10.5072/a"\ntarget = "https://one.example/"\n'
RULES = """
[[service]]
name = "ezproxy"
label = "EZproxy"
kind = "ezproxy"
url = "https://proxy.example.edu/login?url="

[[rule]]
service = "ezproxy"
networks = ["192.0.2.0/24"]
"""


def settings_of(folder: Path) -> dict[str, Any]:
    records, rules = folder / "records.toml", folder / "rules.toml"
    return {"store_url": f"sqlite:///{folder}/s.sqlite3", "local_records": records, "library_rules": rules}


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    chosen = settings_of(tmp_path)
    chosen["local_records"].write_text(RECORD)
    chosen["library_rules"].write_text(RULES)
    return chosen


def break_both(settings: dict[str, Any]) -> None:
    for name in ("local_records", "library_rules"):
        settings[name].write_text("[[record]]\ntargt = 1\n")


async def test_a_start_with_broken_files_uses_the_last_good_ones(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with Proxy(**settings) as proxy:
        before = await proxy.get("/10.5072/a")
    break_both(settings)
    caplog.clear()
    async with Proxy(**settings) as proxy:
        assert (await proxy.get("/10.5072/a"))["location"] == before["location"]
        ready = (await proxy.get("/readyz")).json
        assert ready["ready"]
        assert (ready["local_records"]["state"], ready["local_records"]["records"]) == ("broken", 1)
        assert ready["detail"]["library_rules"] == "broken"
    errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert "local_records: the last good version is in force; correct the file" in errors
    assert "library_rules: the last good version is in force; correct the file" in errors


async def test_files_with_a_byte_order_mark_are_read(settings: dict[str, Any]) -> None:
    for name, text in (("local_records", RECORD), ("library_rules", RULES)):
        settings[name].write_text(f"\ufeff{text}")
    async with Proxy(**settings) as proxy:
        assert (await proxy.get("/10.5072/a"))["location"] == "https://one.example/"
    settings["local_records"].write_bytes(b"\xef\xbb\xbf# x\n# \xff\n")
    (found,) = LocalRecordFiles.check(Inspection(Settings(**settings)))
    assert "records.toml:2:3: the text is not UTF-8" in found.problem


async def test_the_copies_can_only_be_read_by_the_service(settings: dict[str, Any], tmp_path: Path) -> None:
    async with Proxy(**settings):
        pass
    for name, text in (("local-records", RECORD), ("library-rules", RULES)):
        copy = tmp_path / f"s.sqlite3.{name}.toml"
        assert copy.read_text().endswith(text)
        assert copy.stat().st_mode & 0o777 == 0o600


async def test_the_copy_of_another_file_and_a_broken_copy_are_not_used(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    async with Proxy(**settings):
        pass
    other = tmp_path / "other.toml"
    break_both(settings)
    other.write_text("[[record]]\n")
    with pytest.raises(ConfigurationError, match=r"other.toml:1:1"):
        async with Proxy(**{**settings, "local_records": other}):
            pass
    copy = tmp_path / "s.sqlite3.local-records.toml"
    copy.write_text(copy.read_text() + "[[record]]\n")
    with pytest.raises(ConfigurationError, match=r"records.toml:2:1"):
        async with Proxy(**settings):
            pass


@pytest.mark.parametrize("name", ["client_allow_file", "client_deny_file"])
@pytest.mark.parametrize("broken", ["192.0.2.7/24", None])
async def test_a_start_with_a_broken_list_of_networks_uses_the_last_good_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, broken: str | None
) -> None:
    path = tmp_path / "networks.txt"
    path.write_text("127.0.0.0/8\n")
    given = {"store_url": f"sqlite:///{tmp_path}/s.sqlite3", "client_rate": 0.001, "client_burst": 1, name: path}

    async def ask(proxy: Proxy) -> list[int]:
        return [(await proxy.get("/10.5072/a")).status for _ in "ab"]

    async with Proxy(**given) as proxy:
        before = await ask(proxy)
        assert (await proxy.get("/readyz")).json["detail"]["client_lists"] == "ok"
    path.unlink() if broken is None else path.write_text(broken)
    caplog.clear()
    async with Proxy(**given) as proxy:
        assert await ask(proxy) == before
        ready = (await proxy.get("/readyz")).json
        assert ready["ready"] and ready["detail"]["client_lists"] == "broken"
    assert f"{name}: the last good version is in force; correct the file" in caplog.messages
    assert [one.source for one in Limits.check(Inspection(Settings(**given)))] == [name]
    (tmp_path / f"s.sqlite3.{name.removesuffix('_file').replace('_', '-')}.txt").unlink()
    with pytest.raises(ConfigurationError, match=r"networks\.txt"):
        async with Proxy(**given):
            pass


def test_without_a_sqlite_store_the_copy_is_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.toml"
    path.write_text(RECORD)

    def copies() -> list[str]:
        settings = Settings(store_url="valkey://cache.example.org/0", local_records=path)
        KeptFile(record_files(Clock()), print, settings)
        return [file.name for file in tmp_path.iterdir() if file != path]

    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    assert copies() == []
    monkeypatch.setenv("STATE_DIRECTORY", f"{tmp_path}:/var/lib/other")
    assert copies() == ["doi-proxy.local-records.toml"]
