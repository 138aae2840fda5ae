"""The unit fits the settings, and is valid."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from doi_proxy.assembly.settings import Settings
from doi_proxy.commands.main import main
from doi_proxy.errors import ConfigurationError
from doi_proxy.features.setup.unit import write_unit
from tests.cluster.processes import ROOT


@pytest.mark.process
def test_the_unit_follows_the_settings(tmp_path: Path) -> None:
    settings = Settings(port=443, store_url="sqlite:////srv/doi/x.sqlite3")
    text = write_unit(settings, Path("/etc/other.toml"))
    lines = text.splitlines()
    assert {
        "Environment=DOI_PROXY_CONFIG=/etc/other.toml",
        "ReadWritePaths=/srv/doi",
        "AmbientCapabilities=CAP_NET_BIND_SERVICE",
        "CapabilityBoundingSet=CAP_NET_BIND_SERVICE",
    } <= set(lines)
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze, which checks units, is not installed: apt-get install systemd")
    unit = tmp_path / "doi-proxy.service"
    unit.write_text(text.replace("/opt/doi-proxy/bin/doi-proxy", "/bin/true"))
    ended = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, "")


def test_a_path_with_a_character_of_a_unit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--config"):
        write_unit(Settings(), Path("/etc/a b.toml"))
    with pytest.raises(ConfigurationError, match="store_url"):
        write_unit(Settings(store_url="sqlite:////srv/a%b/x.sqlite3"), Path("/etc/a.toml"))


def test_no_secret_is_written() -> None:
    text = write_unit(Settings(store_url="valkey://:hidden@cache.example.edu/2", admin_token="t" * 40), Path("/a.toml"))
    assert "hidden" not in text and "t" * 40 not in text


def test_the_command_prints_the_shipped_unit_for_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gen-config", "systemd"]) == 0
    assert capsys.readouterr().out == (ROOT / "config/systemd/doi-proxy.service").read_text("utf-8")
    assert main(["gen-config", "systemd", "--cache"]) == 2
    assert "front proxies" in capsys.readouterr().err
