"""The command, run as people run it: exit status, one clear line, and a server that answers on its port."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pytest

from doi_proxy.system.version import read_version
from tests.certificates import self_signed

pytestmark = pytest.mark.process

ROOT: Final = Path(__file__).parents[2]
COMMAND: Final = (sys.executable, "-m", "doi_proxy")
NOWHERE: Final = "http://127.0.0.1:9"
#: Longer than a start on a busy machine takes, in seconds.
PATIENCE: Final = 60.0


def environment(**settings: str) -> dict[str, str]:
    """The environment without the settings of the user who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DOI_PROXY_")}
    own = {"STORE_URL": "memory:", "UPSTREAM_URL": NOWHERE, "UPSTREAM_CONTACT": "mailto:library@example.org"}
    return {**kept, **{f"DOI_PROXY_{name}": value for name, value in own.items()}, **settings}


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return run_with(COMMAND, *arguments, **settings)


def run_with(command: tuple[str, ...], *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_a_start_imports_nothing_that_only_other_commands_need() -> None:
    """A start that ends at a seed that does not exist."""
    code = """
from doi_proxy.commands.main import main
main(['serve', '--store-url', 'memory:', '--seed', 'missing'])
import sys
from fastapi.openapi.models import OpenAPI
print(*{'httpx', 'rich', 'pygments', 'redis', 'lxml.html'} & set(sys.modules), OpenAPI.__pydantic_complete__)
"""
    assert run_with((sys.executable, "-c"), code).stdout == "httpx False\n"


def test_a_python_without_docstrings_is_refused_in_one_line() -> None:
    ended = run_with((sys.executable, "-OO", "-m", "doi_proxy"), "serve")
    said = "doi-proxy: python -OO (PYTHONOPTIMIZE=2) removes texts that this program needs; -O keeps them\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", said)


class TestVersion:
    def test_the_module_says_it(self) -> None:
        ended = run("--version")
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"doi-proxy {read_version()}\n", "")

    def test_the_installed_command_says_it(self) -> None:
        installed = Path(sysconfig.get_path("scripts"), "doi-proxy")
        if not installed.exists():
            pytest.skip("the project is not installed")
        ended = run_with((str(installed),), "--version")
        assert (ended.returncode, ended.stdout) == (0, f"doi-proxy {read_version()}\n")


@dataclass(frozen=True)
class Wrong:
    """A command that ends with one line, in which `says` is found; what can pass by itself has status 1."""

    id: str
    arguments: str
    says: str
    settings: tuple[tuple[str, str], ...] = ()
    status: int = 2


WRONG: Final = [
    Wrong("unknown command", "nonsense", "nonsense"),
    Wrong("unknown flag", "serve --nope 1", "--nope"),
    Wrong("abbreviated flag", "config --upstream-u http://x.example", "--upstream-u"),
    Wrong(
        "unknown line of the file",
        "config --config {tmp}/unknown.toml",
        "unknown.toml, line 2: upstream_ulr: there is no such",
    ),
    Wrong("health check with an unknown setting", "check --ready", "DOI_PROXY_NOPE", (("DOI_PROXY_NOPE", "1"),)),
    Wrong("unknown setting", "serve", "DOI_PROXY_NOPE: there is no such setting", (("DOI_PROXY_NOPE", "1"),)),
    Wrong("port in use", "serve --port {used}", "port {used}", status=1),
    Wrong("command with a slip", "reslove 10.1000/182", "did you mean resolve?"),
    Wrong("last word of a command", "purge", "did you mean cache purge?"),
    Wrong("kind that is missing", "gen-config", "kind (one of nginx, apache, caddy, systemd, "),
    Wrong("command that is missing", "cache", "COMMAND (one of export, import, "),
    Wrong("list that is missing", "cache warm", "are required: LIST; see"),
    Wrong("flag with a slip", "serve --prot 1", "did you mean --port?"),
    Wrong("flag of the command itself", "resolve --sugest 10.1000/182", "did you mean --suggest?"),
    Wrong("flag like none of the command", "resolve --wait 5 10.1000/182", "arguments: --wait; see"),
    Wrong("setting with a slip", "resolve --stor-url x 10.1000/182", "did you mean --store-url?"),
    Wrong("verdict with a slip", "resolve --again unverifed {tmp}/missing", "did you mean unverified?"),
    Wrong("store without a path", "serve --port 0 --store-url sqlite:///", "no file path"),
    Wrong("export without a store", "cache export --store-url sqlite:///{tmp}/garbage.pem/x", "garbage.pem"),
    Wrong("store of another kind", "serve --port 0 --store-url mongodb://x", "mongodb"),
    Wrong("seed that is not there", "serve --port 0 --seed {tmp}/missing.ndjson", "missing.ndjson"),
    Wrong("certificate without its key", "serve --port 0 --tls-cert {tmp}/garbage.pem", "--tls-key"),
    Wrong(
        "certificate that is none",
        "serve --port 0 --tls-cert {tmp}/garbage.pem --tls-key {tmp}/garbage.pem",
        "garbage.pem",
    ),
    Wrong(
        "certificate that is not there",
        "serve --port 0 --tls-cert {tmp}/missing.pem --tls-key {tmp}/missing.pem",
        "missing.pem",
    ),
    Wrong("address of another machine", "serve --port 0 --host 192.0.2.1", "192.0.2.1", status=1),
    Wrong("public URL with a password", "serve --port 0 --public-url https://u:p@host.example", "others read it"),
    Wrong("public URL with an escape", "serve --port 0 --public-url https://h.example/a%20b", "has an escape"),
    Wrong("contact with a password", "serve --port 0 --upstream-contact https://u:p@host.example", "others read it"),
    Wrong("country database that is not there", "serve --port 0 --country-database {tmp}/missing.mmdb", "missing.mmdb"),
    Wrong("contact that is not ASCII", "serve --port 0 --upstream-contact mailto:ü@example.org", "contact"),
]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the braces in the table stand for."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "unknown.toml").write_text("[upstream]\nulr = 'http://x.example'\n")
    (folder / "garbage.pem").write_text("neither a certificate nor TOML\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield {"tmp": str(folder), "used": str(taken.getsockname()[1])}


@pytest.mark.parametrize("wrong", WRONG, ids=[one.id for one in WRONG])
def test_what_cannot_be_done_is_told_in_one_line_with_its_exit_status(words: dict[str, str], wrong: Wrong) -> None:
    ended = run(*(word.format_map(words) for word in wrong.arguments.split()), **dict(wrong.settings))
    assert ended.returncode == wrong.status
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert ended.stderr.startswith("doi-proxy: ")
    assert wrong.says.format_map(words) in ended.stderr
    assert ended.stdout == ""


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """The base URL of a proxy that listens. It is stopped as a service manager does it."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", *arguments],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        try:
            said = ""
            while "startup complete" not in said:
                line = process.stderr.readline()
                assert line, said
                said += line
            found = re.search(r"starting on (https?)://(\[[0-9a-f:]+\]|[0-9.]+):([0-9]+)", said)
            assert found, said
            _wait_for(found[2].strip("[]"), int(found[3]))
            yield found[0].removeprefix("starting on ")
        finally:
            process.send_signal(signal.SIGTERM)
            _, rest = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in said + rest and "ERROR" not in said + rest
        assert process.returncode in (0, -signal.SIGTERM)


def _wait_for(host: str, port: int) -> None:
    """Return when the server listens, a moment after its start is complete."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            socket.create_connection((host, port), timeout=PATIENCE).close()
            return
        except ConnectionRefusedError:
            continue
    raise AssertionError(f"no server listens on {host} port {port}")


def test_a_service_without_an_upstream_answers_from_its_seed_and_is_ready() -> None:
    """What `make run` starts on a machine without network."""
    with serving("--seed", "config/seed.ndjson") as url:
        with urlopen(f"{url}/api/handles/10.1000/182") as answer:
            assert json.load(answer)["responseCode"] == 1
            assert "server" not in answer.headers
        ended = run("check", "--ready", "--port", url.rpartition(":")[2])
        assert (ended.returncode, ended.stderr) == (0, "")


def test_it_serves_over_ipv6() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serving("--host", "::1") as url, urlopen(f"{url}/healthz") as answer:
        assert (url.rpartition(":")[0], answer.status) == ("http://[::1]", 200)


def test_it_serves_https_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    used, key = self_signed(tmp_path)
    flags = ("--tls-cert", str(used), "--tls-key", str(key))
    trusting = ssl.create_default_context(cafile=str(used))
    with serving(*flags) as url, urlopen(f"{url}/healthz", context=trusting) as answer:
        assert (url.partition(":")[0], answer.status) == ("https", 200)
        assert run("check", "--ready", "--port", url.rpartition(":")[2], *flags).returncode == 0


def test_without_a_server_the_health_check_fails_with_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ended = run("check", "--ready", "--port", str(port))
    assert (ended.returncode, len(ended.stderr.splitlines())) == (1, 1)
    assert ended.stderr.startswith("doi-proxy: ")


def test_the_settings_in_force_are_shown_with_passwords_masked() -> None:
    ended = run("config", "--port", "1234", DOI_PROXY_STORE_URL="redis://user:geheim@host.example/0")
    shown = dict(line.split("=", 1) for line in ended.stdout.splitlines())
    assert ended.returncode == 0
    assert (shown["DOI_PROXY_PORT"], shown["DOI_PROXY_RESOLVE"]) == ("1234", "doi")
    assert "geheim" not in ended.stdout and "host.example" in shown["DOI_PROXY_STORE_URL"]


def test_the_settings_shown_can_be_given_back() -> None:
    shown = run("config", DOI_PROXY_UPSTREAM_RATE="3").stdout
    assert "DOI_PROXY_UPSTREAM_RATE=3" in shown.splitlines()
    given = dict(line.split("=", 1) for line in shown.splitlines() if not line.startswith("#"))
    assert "#DOI_PROXY_PUBLIC_URL=" in shown.splitlines()
    assert run("config", **given).stdout == shown


def test_a_value_from_a_file_of_secrets_is_not_shown(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("geheim")
    shown = run("config", DOI_PROXY_BRANDING_NAME_FILE=str(secret)).stdout
    assert "DOI_PROXY_BRANDING_NAME=***" in shown.splitlines()


def test_an_error_about_a_setting_shows_no_password() -> None:
    for given in ("https://user:geheim@/", "ftp://user:geheim@host.example/"):
        ended = run("config", DOI_PROXY_UPSTREAM_URL=given)
        assert ended.returncode == 2 and "geheim" not in ended.stderr
