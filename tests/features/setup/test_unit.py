"""The units fit the settings, and are valid."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.main import main
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.setup.installation import CONFIG, PROGRAM, SERVICE, SOCKET, write_units
from tests.cluster.processes import ROOT


@pytest.mark.process
def test_the_units_follow_the_settings(tmp_path: Path) -> None:
    settings = Settings(host="::", port=443, store_url="sqlite:////srv/doi/x.sqlite3")
    units = write_units(settings, Path("/etc/other.toml"), Path("/home/doi/venv/bin/doi-proxy"))
    assert {
        "Environment=DOI_PROXY_CONFIG=/etc/other.toml",
        "Environment=DOI_PROXY_INSTANCE=%i",
        "ExecStart=/home/doi/venv/bin/doi-proxy serve",
        "ProtectHome=read-only",
        "ReadWritePaths=/srv/doi",
    } <= set(units[SERVICE].splitlines())
    assert "ListenStream=[::]:443" in units[SOCKET].splitlines()
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze, which checks units, is not installed: apt-get install systemd")
    for name, text in units.items():
        (tmp_path / name).write_text(text.replace("/home/doi/venv/bin/doi-proxy", "/bin/true"))
    command = ["systemd-analyze", "verify", *(str(tmp_path / name) for name in units)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("host", "line"),
    [
        ("192.0.2.7", "ListenStream=192.0.2.7:8000"),
        ("2001:db8::7", "ListenStream=[2001:db8::7]:8000"),
        ("unix:/run/doi-proxy/http.sock", "ListenStream=/run/doi-proxy/http.sock"),
    ],
)
def test_the_socket_has_the_address_of_the_settings(host: str, line: str) -> None:
    assert line in write_units(Settings(host=host), CONFIG, PROGRAM)[SOCKET].splitlines()


def test_a_name_is_not_an_address_of_a_socket() -> None:
    with pytest.raises(ConfigurationError, match="host: 'localhost' is a name"):
        write_units(Settings(host="localhost"), CONFIG, PROGRAM)


def test_a_path_with_a_character_of_a_unit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--config"):
        write_units(Settings(), Path("/etc/a b.toml"), PROGRAM)
    with pytest.raises(ConfigurationError, match="store_url"):
        write_units(Settings(store_url="sqlite:////srv/a%b/x.sqlite3"), Path("/etc/a.toml"), PROGRAM)
    with pytest.raises(ConfigurationError, match="the program"):
        write_units(Settings(), Path("/etc/a.toml"), Path("/srv/my programs/doi-proxy"))


def test_no_secret_is_written() -> None:
    settings = Settings(store_url="valkey://:hidden@cache.example.edu/2", admin_token="t" * 40)
    text = "".join(write_units(settings, CONFIG, PROGRAM).values())
    assert "hidden" not in text and "t" * 40 not in text


def test_the_units_of_the_package_are_those_of_the_defaults() -> None:
    for name, text in write_units(Settings(), CONFIG, PROGRAM).items():
        assert text == (ROOT / "config/systemd" / name).read_text("utf-8")


def test_the_command_names_the_program_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin/doi-proxy"
    program.parent.mkdir()
    program.touch()
    (tmp_path / "doi-proxy").symlink_to(program)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "doi-proxy")])
    assert main(["gen-config", "systemd"]) == 0
    assert f"ExecStart={program} serve\n" in capsys.readouterr().out
    assert main(["gen-config", "systemd-socket", "--port", "8123"]) == 0
    assert "ListenStream=127.0.0.1:8123\n" in capsys.readouterr().out
    assert main(["gen-config", "systemd", "--cache"]) == 2
    assert "front proxies" in capsys.readouterr().err
