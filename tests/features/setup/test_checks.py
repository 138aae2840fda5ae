"""Each wrong or useless setting is named with its source, and with what to do."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import ssl
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from doi_proxy.assembly.checks import CoreInspection, find_store_failure, find_upstream_failure, inspect
from doi_proxy.assembly.settings import Settings, build
from doi_proxy.assembly.settings.sources import read_sources
from doi_proxy.commands.serve import log_warnings
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.setup import checks
from doi_proxy.features.setup.check_command import CHECKS, show_findings
from doi_proxy.features.setup.checks import find_contradictions, find_ineffective, find_refused_routes, find_risks
from doi_proxy.features.setup.command import COMMANDS
from doi_proxy.main import create
from doi_proxy.server.tls import find_certificate_problems
from doi_proxy.system.check import Finding, exit_status, find_deprecated
from doi_proxy.system.options import variable
from tests.certificates import self_signed
from tests.features.listening import listening
from tests.parts import command_context

#: Seconds for a connection to this process, however busy the machine is.
PATIENCE = 60.0
#: Without any finding.
QUIET = {
    "upstream_contact": "mailto:library@example.org",
    "public_url": "https://doi.example.org",
    "store_url": "memory:",
    "port": "0",
}


def findings_of(**settings: str) -> list[Finding]:
    environment = {variable(name): value for name, value in {**QUIET, **settings}.items()}
    values = read_sources({}, environment, None, Settings.model_fields)
    return inspect(values, CHECKS, offline=True)


def configured(**settings: Any) -> CoreInspection:
    given = {**QUIET, **settings}
    values = read_sources(
        {}, {variable(name): str(value) for name, value in given.items()}, None, Settings.model_fields
    )
    return CoreInspection(Settings(**given), {name: one.source for name, one in values.items()}, offline=False)


def test_good_settings_have_no_findings() -> None:
    assert findings_of() == []
    assert exit_status([]) == 0


@pytest.mark.parametrize(
    ("settings", "source"),
    [
        ({"client_burst": "7"}, "client_burst"),
        ({"express_lane": "false", "express_memory_bytes": "7"}, "express_memory_bytes"),
        ({"privacy_level": "0"}, "privacy_level"),
        ({"store_max_bytes": "10000000"}, "store_max_bytes"),
        ({"mode": "sealed", "upstream_rate": "3"}, "upstream_rate"),
    ],
)
def test_a_setting_without_an_effect_is_a_warning(settings: dict[str, str], source: str) -> None:
    found = list(find_ineffective(configured(**settings)))
    assert variable(source) in [one.source for one in found]
    assert {one.severity for one in found} == {"warning"}


@pytest.mark.parametrize(
    ("name", "value", "successor"),
    [
        ("workers", "0", None),
        ("upstream_machines", "3", ("instances", 3)),
        ("admin_listen", "127.0.0.1:8001", ("management_listen", ("127.0.0.1:8001",))),
    ],
)
def test_a_setting_that_left_is_a_warning_and_its_successor_has_its_value(
    caplog: pytest.LogCaptureFixture, name: str, value: str, successor: tuple[str, object] | None
) -> None:
    settings = build(read_sources({}, {variable(name): value}, None, Settings.model_fields))
    (found,) = find_deprecated(CoreInspection(settings))
    log_warnings(settings)
    assert (found.severity, found.source) == ("warning", variable(name))
    assert str(found) in caplog.messages and "this setting left; " in str(found)
    assert successor is None or settings.value(successor[0]) == successor[1]


def test_the_same_settings_with_an_effect_are_none() -> None:
    assert not list(find_ineffective(configured(client_burst=7, client_rate=3, access_log="json", privacy_level=0)))


def test_a_setting_of_a_feature_that_is_not_installed_has_no_value() -> None:
    assert not configured().is_set("none")


def test_a_route_of_a_prefix_that_is_not_resolved_is_a_warning() -> None:
    routes = {"upstream_routes": "10.5072=https://a.example,20.500.12345=hdl://a.example"}
    (found,) = find_refused_routes(configured(**routes))
    assert found.source == "DOI_PROXY_UPSTREAM_ROUTES" and "20.500.12345" in found.problem
    assert not list(find_refused_routes(configured(**routes, resolve="any")))


def test_a_setting_that_another_one_cuts_off_is_a_warning() -> None:
    (found,) = find_contradictions(configured(cache_ttl_floor=90_000))
    assert found.source == "DOI_PROXY_CACHE_TTL_FLOOR" and "cache_ttl_ceiling is only 86400" in found.problem


@pytest.mark.parametrize("address", ["0.0.0.0:8101", "[::]:8101", "192.0.2.1:8101", "admin.example.org:8101"])
def test_an_admin_api_that_other_machines_reach_is_a_warning(address: str) -> None:
    (found,) = find_risks(configured(management_listen=[address]))
    assert (found.severity, found.source) == ("warning", "DOI_PROXY_MANAGEMENT_LISTEN")


@pytest.mark.parametrize("address", ["127.0.0.1:8101", "[::1]:8101", "localhost:8101", "unix:/run/doi-proxy/1.sock"])
def test_an_admin_api_of_this_machine_alone_is_no_risk(address: str) -> None:
    assert list(find_risks(configured(management_listen=[address]))) == []


def test_a_management_address_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    (found,) = findings_of(management_listen=f"unix:{tmp_path}/none/1.sock")
    assert (found.severity, found.source) == ("error", "DOI_PROXY_MANAGEMENT_LISTEN")
    assert "its folder does not exist" in found.problem


def test_instances_that_share_nothing_are_a_warning() -> None:
    (found,) = find_risks(configured(instances=2, store_url="memory:"))
    assert (found.severity, found.source) == ("warning", "DOI_PROXY_STORE_URL")


def test_a_risk_is_named() -> None:
    for everyone in ("10.0.0.1, *", "0.0.0.0/0", "10.0.0.1,::/0"):
        (found,) = find_risks(configured(trusted_proxies=everyone))
        assert (found.severity, found.source) == ("warning", "DOI_PROXY_TRUSTED_PROXIES")


def test_more_cache_than_memory_is_a_warning() -> None:
    (found,) = checks.find_machine_limits(configured(instances=64, cache_memory_bytes=2**46))
    assert found.source == "DOI_PROXY_CACHE_MEMORY_BYTES"
    assert not list(checks.find_machine_limits(configured()))


def test_every_value_that_cannot_be_used_is_named_and_the_rest_is_still_checked() -> None:
    # The default in place of a wrong port is not checked, whoever has that port.
    with socket.socket() as other:
        with suppress(OSError):
            other.bind(("127.0.0.1", 8000))
            other.listen()
        found = findings_of(port="x", upstream_rat="1", client_burst="7")
    assert [(one.severity, one.source) for one in found] == [
        ("error", "DOI_PROXY_PORT"),
        ("error", "DOI_PROXY_UPSTREAM_RAT"),
        ("warning", "DOI_PROXY_CLIENT_BURST"),
    ]
    assert "did you mean DOI_PROXY_UPSTREAM_RATE?" in found[1].problem
    assert exit_status(found) == 2 and exit_status(found[2:]) == 1


@pytest.mark.parametrize("words", [[], ["--offline"]])
def test_a_server_is_named_only_for_a_question_about_a_running_proxy(words: list[str]) -> None:
    check = next(command for command in COMMANDS if command.name == "check")
    parser = argparse.ArgumentParser()
    check.add_arguments(parser)
    arguments = parser.parse_args([*words, "--server", "http://127.0.0.1:9"])
    with pytest.raises(ConfigurationError, match="add --ready, --running or --bundle FILE"):
        check.run(command_context(Settings(**QUIET)), arguments)


@pytest.mark.parametrize("value", ["doi proxy (", "http://user:p%zz@h:99999/"])
def test_no_value_of_any_setting_ends_the_check_or_shows_a_regular_expression(value: str) -> None:
    for name in Settings.model_fields:
        for found in findings_of(**{name: value}):
            assert "pattern" not in found.problem and not set("^\\|") & set(found.problem), found


@pytest.mark.parametrize("name", ["seed", "client_deny_file", "country_database", "branding_folder"])
def test_a_file_that_is_not_there_is_an_error_of_its_setting(name: str, tmp_path: Path) -> None:
    found = findings_of(**{name: str(tmp_path / "missing")})
    assert variable(name) in [one.source for one in found]
    assert exit_status(found) == 2


def test_content_that_the_proxy_refuses_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "networks").write_text("192.0.2.0/24\nlibrary\n")
    (found,) = findings_of(client_deny_file=str(tmp_path / "networks"))
    assert "networks:2:1: 'library'" in found.problem
    (tmp_path / "branding.toml").write_text('accent = "#fff"')
    (found,) = findings_of(branding_folder=str(tmp_path))
    assert found.severity == "error" and "#fff" in found.problem


def test_a_bootstrap_file_that_is_not_one_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "root.json").write_text('{"responseCode":100,"handle":"0.NA/0.NA"}')
    (found,) = findings_of(upstream_url="hdl:", upstream_bootstrap=str(tmp_path / "root.json"))
    assert (found.severity, found.source) == ("error", "DOI_PROXY_UPSTREAM_BOOTSTRAP")
    assert found.problem.endswith(f"{tmp_path}/root.json: the file names no server of the root")
    assert "curl" in found.remedy


def test_a_problem_in_local_records_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "records.toml").write_text('[[record]]\ndoi = "10.1234/x"\n')
    (found, *_) = findings_of(local_records=str(tmp_path / "records.toml"))
    assert (found.severity, found.source) == ("error", "DOI_PROXY_LOCAL_RECORDS")
    assert f"{tmp_path}/records.toml:1:1: " in found.problem
    assert "the last good version is in force" in found.remedy
    (tmp_path / "records.toml").write_text(
        '[[record]]\ndoi = "10.1234/x"\ntarget = "https://example.org/"\nuntil = 2020-12-31\n'
    )
    (found,) = findings_of(local_records=str(tmp_path / "records.toml"))
    assert (found.severity, found.remedy) == ("warning", "")


def test_every_problem_in_library_rules_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('[[rule]]\nservice = "x"\n[[expect]]\ndoi = "10.1/2"\n')
    found = findings_of(library_rules=str(tmp_path / "rules.toml"))
    assert [(one.severity, one.source) for one in found] == [("error", "DOI_PROXY_LIBRARY_RULES")] * 2
    assert f"{tmp_path}/rules.toml:2:1: service is 'x'" in found[0].problem
    assert f"{tmp_path}/rules.toml:3:1: " in found[1].problem


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for doi.example.org that ends in ten days, and its key."""
    end = datetime.now(UTC) + timedelta(days=10)
    return self_signed(tmp_path_factory.mktemp("certificate"), "doi.example.org", end=end)


def test_a_certificate_that_ends_soon_is_a_warning_and_one_for_another_host_too(pair: tuple[Path, Path]) -> None:
    (found,) = find_certificate_problems(configured(tls_cert=pair[0], tls_key=pair[1]))
    assert (found.severity, found.remedy) == ("warning", "renew it") and " days" in found.problem
    other = configured(tls_cert=pair[0], tls_key=pair[1], public_url="https://other.example.org")
    assert "other.example.org" in list(find_certificate_problems(other))[1].problem


def test_a_certificate_without_its_key_or_with_another_key_is_an_error(pair: tuple[Path, Path], tmp_path: Path) -> None:
    (found,) = find_certificate_problems(configured(tls_cert=pair[0]))
    assert found.severity == "error" and "only one of them" in found.problem
    (found,) = find_certificate_problems(configured(tls_cert=pair[0], tls_key=self_signed(tmp_path).key))
    assert found.severity == "error" and found.source == "DOI_PROXY_TLS_CERT"


def test_the_certificate_of_the_standard_library_is_read_as_assumed(pair: tuple[Path, Path]) -> None:
    fields = ssl._ssl._test_decode_cert(str(pair[0]))  # type: ignore[attr-defined]
    assert {"notAfter", "subjectAltName"} <= set(fields)


def test_a_store_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (found,) = findings_of(store_url=f"sqlite:///{tmp_path}/file/store.sqlite3")
    assert (found.severity, found.source) == ("error", "DOI_PROXY_STORE_URL")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"f_bavail": 0}, "is full: 0 bytes can be written"),
        ({"f_files": 9, "f_favail": 0}, "is full: no more files can be written"),
        ({"f_flag": os.ST_RDONLY}, "is read-only"),
    ],
)
@pytest.mark.parametrize("name", ["store.sqlite3", "new/store.sqlite3"])
def test_a_disk_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, changed: dict[str, int], problem: str
) -> None:
    """The folder is the user's, and the file can be opened: only a write fails."""
    (tmp_path / "store.sqlite3").touch()
    usual = {"f_flag": 0, "f_bavail": 10**9, "f_bfree": 10**9, "f_blocks": 10**9, "f_frsize": 1, "f_files": 0}
    disk = SimpleNamespace(**{**usual, **changed})
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    (found,) = findings_of(store_url=f"sqlite:///{tmp_path}/{name}")
    assert (found.severity, found.source) == ("error", "DOI_PROXY_STORE_URL")
    assert problem in found.problem


def test_a_path_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    """A folder without the right to enter it raised the same kind of error, and a traceback of 25 lines."""
    (found,) = findings_of(store_url=f"sqlite:///{tmp_path}/{'x' * 300}/store.sqlite3")
    assert (found.severity, found.source) == ("error", "DOI_PROXY_STORE_URL")
    assert "cannot be reached: File name too long" in found.problem


@pytest.mark.parametrize("url", ["other://x", "sqlite://x", "sqlite:///", "valkey://h:99999/0", "valkey://h/x"])
def test_a_store_url_that_cannot_be_used_is_an_error_without_a_network_too(url: str) -> None:
    assert [one.source for one in findings_of(store_url=url) if one.severity == "error"] == [variable("store_url")]
    assert findings_of(store_url="valkey://127.0.0.1:9/0") == []


def test_a_check_creates_no_store(tmp_path: Path) -> None:
    assert findings_of(store_url=f"sqlite:///{tmp_path}/new/store.sqlite3") == []
    assert not list(find_store_failure(configured(store_url=f"sqlite:///{tmp_path}/new/store.sqlite3")))
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_a_store_and_a_server_that_does_not_answer_are_errors(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("this is not a store")
    (found,) = find_store_failure(configured(store_url=f"sqlite:///{tmp_path}/other"))
    assert "not a database" in found.problem
    (found,) = find_store_failure(configured(store_url="redis://user:geheim@127.0.0.1:9/0"))
    assert found.severity == "error" and "geheim" not in found.problem


def test_an_upstream_that_does_not_answer_is_an_error() -> None:
    (found,) = find_upstream_failure(configured(upstream_url="http://127.0.0.1:9"))
    assert (found.severity, found.source) == ("error", "DOI_PROXY_UPSTREAM_URL")
    assert not list(find_upstream_failure(configured(upstream_url="http://127.0.0.1:9", mode="sealed")))


def test_a_port_in_use_is_an_error() -> None:
    with socket.socket() as bound:
        # It does not listen, so a connection is refused at once.
        bound.bind(("127.0.0.1", 0))
        (found,) = findings_of(port=str(bound.getsockname()[1]))
    assert (found.severity, found.source) == ("error", "DOI_PROXY_PORT")
    assert found.problem.endswith("the port is in use")


@pytest.mark.anyio
@pytest.mark.real_time  # The check connects to a socket of the system.
async def test_a_port_on_which_a_doi_proxy_answers_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_TIMEOUT", PATIENCE)
    async with listening(create(Settings(store_url="memory:", mode="sealed")), lifespan="on") as url:
        port = url.rpartition(":")[2]
        (found,) = await asyncio.to_thread(findings_of, port=port)
    assert (found.severity, found.source) == ("note", "DOI_PROXY_PORT")
    assert found.problem == f"a doi-proxy already answers on port {port}"


def test_the_findings_are_printed_as_lines_or_as_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    found = [Finding("note", "seed", "it is large"), Finding("error", "port", "it is in use", "choose another one")]
    assert show_findings(found, as_json=True) == show_findings(found, as_json=False) == 2
    printed, *lines = capsys.readouterr().out.splitlines()
    assert json.loads(printed) == {"status": 2, "findings": [asdict(finding) for finding in found]}
    assert lines[:2] == ["error: port: it is in use; choose another one", "note: seed: it is large"]
