"""The unit fits the settings, and is valid."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.main import main
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.setup.unit import CONFIG, PROGRAM, write_unit
from tests.cluster.processes import ROOT


@pytest.mark.process
def test_the_unit_follows_the_settings(tmp_path: Path) -> None:
    settings = Settings(port=443, store_url="sqlite:////srv/doi/x.sqlite3")
    text = write_unit(settings, Path("/etc/other.toml"), Path("/home/doi/venv/bin/doi-proxy"))
    lines = text.splitlines()
    assert {
        "Environment=DOI_PROXY_CONFIG=/etc/other.toml",
        "ExecStart=/home/doi/venv/bin/doi-proxy serve",
        "ProtectHome=read-only",
        "ReadWritePaths=/srv/doi",
        "AmbientCapabilities=CAP_NET_BIND_SERVICE",
        "CapabilityBoundingSet=CAP_NET_BIND_SERVICE",
    } <= set(lines)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze, which checks units, is not installed: apt-get install systemd")
    unit = tmp_path / "doi-proxy.service"
    unit.write_text(text.replace("/home/doi/venv/bin/doi-proxy", "/bin/true"))
    ended = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


def test_a_path_with_a_character_of_a_unit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--config"):
        write_unit(Settings(), Path("/etc/a b.toml"), PROGRAM)
    with pytest.raises(ConfigurationError, match="store_url"):
        write_unit(Settings(store_url="sqlite:////srv/a%b/x.sqlite3"), Path("/etc/a.toml"), PROGRAM)
    with pytest.raises(ConfigurationError, match="the program"):
        write_unit(Settings(), Path("/etc/a.toml"), Path("/srv/my programs/doi-proxy"))


def test_no_secret_is_written() -> None:
    settings = Settings(store_url="valkey://:hidden@cache.example.edu/2", admin_token="t" * 40)
    text = write_unit(settings, CONFIG, PROGRAM)
    assert "hidden" not in text and "t" * 40 not in text


def test_the_unit_of_the_package_is_that_of_the_defaults() -> None:
    assert write_unit(Settings(), CONFIG, PROGRAM) == (ROOT / "config/systemd/doi-proxy.service").read_text("utf-8")


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
    assert main(["gen-config", "systemd", "--cache"]) == 2
    assert "front proxies" in capsys.readouterr().err
