"""A reload applies the reloadable settings, keeps the others, and logs both."""

from __future__ import annotations

import asyncio
import errno
import http.client
import logging
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from bench import plain_asgi
from doi_proxy.assembly import features
from doi_proxy.assembly.features import installed
from doi_proxy.assembly.lifecycle import Lifecycle, end_tasks, merge, reload_settings
from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.serve import register, server_options
from doi_proxy.errors import ConfigurationError
from doi_proxy.features import NAMES
from doi_proxy.features.feature import Feature, Observers
from doi_proxy.main import create, create_from_environment
from doi_proxy.server.http_server import Events, HttpServer
from doi_proxy.server.tls import Certificate
from doi_proxy.system.check import Service
from doi_proxy.system.options import ENV_PREFIX
from doi_proxy.web.stage import Admission, Encoder, Section, Stage, Stages
from tools.removable import find_heavy

BEFORE = Settings(store_url="memory:")
AFTER = Settings(store_url="memory:", log_level="debug", port=8001)


def refuse(_: Settings) -> None:
    raise ConfigurationError("the list cannot be read")


def test_a_reload_changes_reloadable_settings_alone() -> None:
    merged = merge(BEFORE, AFTER)
    assert (merged.log_level, merged.port) == ("debug", BEFORE.port)


def test_a_reload_counts_as_set_what_is_set_in_the_new_sources_or_was_at_the_start() -> None:
    before = Settings(store_url="memory:", log_level="debug", port=8001)
    fresh = Settings(store_url="memory:", branding_name="Library", host="::1")
    expected = {"store_url", "port", "branding_name"}
    assert "host" not in Settings.reloadable() and {"log_level", "branding_name"} <= Settings.reloadable()
    merged = merge(before, fresh)
    assert merged.model_fields_set == expected
    assert merged == Settings(store_url="memory:", branding_name="Library", port=8001)
    lifecycle = Lifecycle(before)
    lifecycle.on_reload(refuse, "branding_name")
    lifecycle.reload(fresh)
    assert lifecycle.settings.model_fields_set == expected - {"branding_name"}


def test_each_part_gets_the_settings_in_force_at_each_reload() -> None:
    lifecycle, levels = Lifecycle(BEFORE), list[str]()
    lifecycle.on_reload(lambda settings: levels.append(settings.log_level), "log_level")
    lifecycle.reload(AFTER)
    lifecycle.reload(AFTER)
    lifecycle.reload(BEFORE)
    assert levels == ["debug", "debug", "info"]


def test_a_part_that_cannot_be_reloaded_keeps_its_settings_and_the_others_are_reloaded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lifecycle, levels = Lifecycle(BEFORE), list[str]()
    lifecycle.on_reload(refuse, "log_level")
    lifecycle.on_reload(lambda settings: levels.append(settings.log_level))
    lifecycle.reload(AFTER)
    assert (lifecycle.settings, levels) == (BEFORE, ["debug"])
    assert "the list cannot be read" in caplog.text


def test_a_reload_without_a_free_file_is_a_failed_one_and_reaches_the_other_parts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def open_file(_: Settings) -> None:
        raise OSError(errno.EMFILE, "Too many open files", "branding.py")

    lifecycle, levels = Lifecycle(BEFORE), list[str]()
    lifecycle.on_reload(open_file, "log_level")
    lifecycle.on_reload(lambda settings: levels.append(settings.log_level))
    lifecycle.reload(AFTER)
    assert (lifecycle.settings, lifecycle.reload_failed, levels) == (BEFORE, True, ["debug"])
    assert "reload failed, the previous settings stay in force: Too many open files" in caplog.text


def test_settings_that_need_a_restart_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert reload_settings(BEFORE, lambda: AFTER) == AFTER
    assert [record.getMessage() for record in caplog.records] == [
        "SIGHUP: reloading; settings that changed: log_level",
        "SIGHUP: these settings changed and need a restart: port",
    ]


def test_settings_that_cannot_be_read_leave_the_former_ones(caplog: pytest.LogCaptureFixture) -> None:
    def load() -> Settings:
        raise ConfigurationError("proxy.toml: port: not a number")

    assert reload_settings(BEFORE, load) is None
    assert "proxy.toml: port: not a number" in caplog.text


def test_every_setting_that_is_marked_as_reloaded_is_reloaded_by_a_part() -> None:
    lifecycle = Lifecycle(BEFORE)
    application = create(BEFORE, lifecycle=lifecycle)
    events = Events(ready=lambda: None, draining=lifecycle.start_draining)
    register(HttpServer(application, server_options(BEFORE, Certificate(None, None)), events), lifecycle)
    assert lifecycle.reloaded == Settings.reloadable()


@pytest.mark.anyio
async def test_a_task_that_loses_a_cancellation_is_ended_all_the_same() -> None:
    begun, for_ever = asyncio.Event(), asyncio.Event()

    async def watch() -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await for_ever.wait()
        await for_ever.wait()

    task = asyncio.create_task(watch())
    await begun.wait()
    await end_tasks([task])
    assert task.cancelled()


# --- The factory for other ASGI servers, which reads the environment -------------------------------------------------


_LISTENS: Final = re.compile(r"running on http://127\.0\.0\.1:(\d+)")


def test_the_bench_uses_the_factory() -> None:
    assert plain_asgi.create_from_environment is create_from_environment


@pytest.mark.process
def test_plain_uvicorn_serves_the_application_with_the_settings_of_the_environment(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ENV_PREFIX)}
    environment |= {"DOI_PROXY_MODE": "sealed", "DOI_PROXY_STORE_URL": f"sqlite:///{tmp_path}/cache.db"}
    command = [sys.executable, "-m", "uvicorn", "--factory", "doi_proxy.main:create_from_environment", "--port", "0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            found = next(filter(None, map(_LISTENS.search, server.stderr)), None)
            assert found is not None
            connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
            assert (tmp_path / "cache.db").exists()
            connection.close()
        finally:
            server.terminate()


# --- The features that are installed, and what they need -------------------------------------------------------------


def test_needs_has_no_cycle() -> None:
    seen: set[str] = set()
    for feature in installed():
        assert seen.issuperset(feature.needs), feature.name
        seen.add(feature.name)
    assert seen == set(NAMES)


def test_no_feature_takes_more_than_two_others_with_it() -> None:
    """`make removable` removes each one, and sees the rest start and answer."""
    assert {feature.name: heavy for feature in installed() if (heavy := find_heavy(feature.name))} == {}


@pytest.mark.parametrize("seam", [Admission, Encoder, Feature, Observers, Section, Service, Stage, Stages])
def test_a_seam_has_at_most_sixteen_members(seam: type) -> None:
    members = {name for name in (*vars(seam), *vars(seam).get("__annotations__", ())) if not name.startswith("_")}
    assert 0 < len(members) <= 16


def test_an_installed_feature_that_needs_a_missing_one_is_named_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "NAMES", [name for name in NAMES if name != "metadata"])
    installed.cache_clear()
    try:
        with pytest.raises(ConfigurationError, match="the feature lists needs the feature metadata, which is not"):
            installed()
    finally:
        installed.cache_clear()
