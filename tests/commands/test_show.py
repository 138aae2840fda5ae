"""`doi-proxy config` prints settings that the program can read again, each with its source."""

from __future__ import annotations

import gc
import os
import re
import socket
import subprocess
import sys
from math import inf
from pathlib import Path

import certifi
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doi_proxy.assembly.settings import Settings, build, load
from doi_proxy.assembly.settings.sources import read_sources
from doi_proxy.commands.imports import collect_nothing, skip_pydantic_plugins
from doi_proxy.commands.main import main
from doi_proxy.commands.show import Form, show_settings
from doi_proxy.commands.systemd import Notifier, read_watchdog
from doi_proxy.system.options import flag_of, variable
from tests.clock import Clock

#: Text as a settings file or a variable can have it.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
CHANGED = st.fixed_dictionaries(
    {},
    optional={
        "admin_token": st.none(),
        "branding_name": TEXT.filter(bool),
        "seed": st.just(Path("a b/ü.ndjson")),
        "port": st.integers(0, 65535),
        "upstream_rate": st.floats(0.001, 1e6),
        "express_lane": st.booleans(),
        "mode": st.sampled_from(["online", "sealed"]),
        "public_url": st.just("https://doi.example.org/doi"),
        "cache_grace": st.floats(1e-9, 3e8) | st.integers(0, 300_000_000),
        "upstream_timeout": st.floats(0.001, 3_600),
        "cache_memory_bytes": st.integers(0, 100 * 1024**4),
        "metadata": st.booleans(),
        "trusted_proxies": st.lists(st.sampled_from(["127.0.0.1", "::1", "10.0.0.0/8"])).map(tuple),
        "upstream_url": st.just(("https://doi.org", "http://b.example:80/a")),
    },
)


def shown(flags: dict[str, object], form: Form, capsys: pytest.CaptureFixture[str], **environment: str) -> str:
    values = read_sources(
        flags, {variable(name): value for name, value in environment.items()}, None, Settings.model_fields
    )
    show_settings(build(values), values, form, sources=True)
    return capsys.readouterr().out


def variables(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.split("\n") if line and not line.startswith("#"))


@given(flags=CHANGED)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_toml_file_gives_the_same_settings(
    flags: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shown.toml"
    file.write_bytes(shown(flags, "toml", capsys).encode())
    assert load({}, {}, file) == Settings(**flags)


@given(flags=CHANGED)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_variables_give_the_same_settings_except_for_line_breaks_and_empty_texts(
    flags: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    one_line = {
        name: value for name, value in flags.items() if value not in ("", ()) and not {"\n", "\r"} & set(str(value))
    }
    assert load({}, variables(shown(flags, "env", capsys))) == Settings(**one_line)


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("env", ("DOI_PROXY_PORT=9", "DOI_PROXY_INSTANCE=2", "DOI_PROXY_UPSTREAM_RATE=3", "DOI_PROXY_HOST=127.0.0.1")),
        ("toml", ("port = 9", 'instance = "2"', "rate = 3.0", 'host = "127.0.0.1"')),
    ],
)
def test_each_setting_has_its_source_if_it_is_wanted(
    form: Form, names: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "doi-proxy.toml"
    file.write_text("[upstream]\nrate = 3\n")
    values = read_sources({"port": "9"}, {"DOI_PROXY_INSTANCE": "2"}, file, Settings.model_fields)
    show_settings(build(values), values, form, sources=True)
    text = capsys.readouterr().out
    sources = ("--port", "DOI_PROXY_INSTANCE", f"{file}, line 2: upstream_rate", "default")
    for name, source in zip(names, sources, strict=True):
        assert f"# {source}\n{name}\n" in text
    show_settings(build(values), values, form, sources=False)
    without = [line for line in text.splitlines() if not line.startswith("# ")]
    assert capsys.readouterr().out.splitlines() == without


@pytest.mark.parametrize("form", ["env", "toml"])
def test_a_masked_value_is_a_comment_that_is_not_read_back(form: Form, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown({}, form, capsys, store_url="redis://user:geheim@host.example/0")
    (line,) = [line for line in text.split("\n") if "host.example" in line]
    assert line.startswith("#") and "geheim" not in text


# --- What a start imports, and what the garbage collector makes of it ------------------------------------------------


def test_the_garbage_collector_leaves_alone_what_is_imported_and_runs_afterwards() -> None:
    with collect_nothing():
        assert not gc.isenabled()
        kept: list[list[int]] = [[] for _ in range(10)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(kept)


@pytest.mark.process
def test_a_start_reads_no_certificates_for_contexts_that_it_does_not_use() -> None:
    code = """
import ssl
from doi_proxy.commands.imports import import_aiohttp

before = ssl.SSLContext.set_default_verify_paths
import_aiohttp()
from aiohttp import connector

assert ssl.SSLContext.set_default_verify_paths is before
context = connector._SSL_CONTEXT_VERIFIED
assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
print(context.cert_store_stats()["x509"])
"""
    environment = {**os.environ, "SSL_CERT_FILE": certifi.where()}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert done.stdout == b"0\n"


def test_an_operator_s_choice_of_pydantic_plugins_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "one")
    skip_pydantic_plugins()
    assert os.environ["PYDANTIC_DISABLE_PLUGINS"] == "one"


# --- The help of the program, and its standard streams ---------------------------------------------------------------


def read_help(capsys: pytest.CaptureFixture[str], *arguments: str) -> set[str]:
    """The words and flags of a help text."""
    with pytest.raises(SystemExit, match="0"):
        main(arguments)
    return set(re.findall(r"[\w-]+", capsys.readouterr().out))


def test_help_names_every_command_and_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"serve", "config", "check"} <= read_help(capsys, "--help")
    short = read_help(capsys, "serve", "--help")
    assert {"--help-settings", "--port"} <= short and "--upstream-rate" not in short
    assert {flag_of(name) for name in Settings.model_fields} <= read_help(capsys, "serve", "--help-settings")


def test_help_writes_the_defaults_as_people_write_values(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["serve", "--help-settings"])
    text = " ".join(capsys.readouterr().out.split())
    for setting in (
        "CACHE_GRACE, default 30d",
        "CACHE_MEMORY_BYTES, default 256M",
        "METADATA, default on",
        "TLS_CERT, not set by default",
        "UPSTREAM_BURST",
        "UPSTREAM_ROUTES, not set by default",
        "UPSTREAM_URL, default https://doi.org",
    ):
        assert f"[DOI_PROXY_{setting}]" in text


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_a_standard_stream_that_was_closed_before_the_start_is_replaced(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, name, None)
    assert main(["parse", "10.1000/182"]) == 0
    with getattr(sys, name) as stream:
        assert (stream.readable(), stream.writable()) == (name == "stdin", name != "stdin")


# --- What systemd is told: that the service does not hang ------------------------------------------------------------


def test_a_service_that_does_not_hang_says_so_three_times_in_each_deadline(tmp_path: Path) -> None:
    clock = Clock(0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        notifier = Notifier(str(tmp_path / "notify"), watchdog=60.0, timer=clock)
        messages = list[bytes]()
        for _ in range(60):
            notifier.alive()
            clock.advance(1)
            try:
                messages.append(manager.recv(100))
            except BlockingIOError:
                continue
    assert messages == [b"WATCHDOG=1"] * 3


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, inf),
        ({"WATCHDOG_USEC": "60000000"}, 60.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, inf),
        ({"WATCHDOG_USEC": "soon"}, inf),
        ({"WATCHDOG_USEC": "0"}, inf),
    ],
)
def test_the_deadline_is_that_of_the_unit_for_this_process(environment: dict[str, str], seconds: float) -> None:
    assert read_watchdog(environment) == seconds


def test_the_deadline_of_this_process_by_its_id_counts() -> None:
    # The id is that of a fork, and not of the process that collected the tests.
    assert read_watchdog({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}) == 60.0


def test_without_a_deadline_it_sends_nothing(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        Notifier(str(tmp_path / "notify")).alive()
        with pytest.raises(BlockingIOError):
            manager.recv(100)
