"""The unit, the compose file and the manifests fit the settings, and are valid."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator

from app.assembly.settings import Settings, load
from app.cli.main import main
from app.errors import ConfigurationError
from app.features.setup.deployment_files import CONFIG, write_compose, write_unit
from app.features.setup.kubernetes_files import write_manifests
from app.features.setup.shipped import shipped_files
from tests.cluster.processes import ROOT

TOKEN = "a-token-of-the-admin-api"
#: Settings of each kind: a number, a text, a file, two secrets, tables that a file has and does not have.
SETTINGS = Settings(
    public_url="https://doi.example.edu/$x",
    port=8123,
    workers=4,
    drain_seconds=30.5,
    upstream_rate=20,
    cache_memory_bytes=512 * 1024**2,
    library_rules=Path("/srv/rules.toml"),
    admin_token=TOKEN,
    store_url="valkey://:hidden@cache.example.edu:6379/2",
    status_access="admin",
    client_rate=5,
)


def test_a_shipped_file_is_what_the_generator_writes_for_the_defaults() -> None:
    assert {
        path for path, text in shipped_files(Settings()).items() if (ROOT / path).read_text("utf-8") != text
    } == set()


def compose(settings: Settings) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(write_compose(settings))
    schema = json.loads((ROOT / "tests/compose.schema.json").read_text("utf-8"))
    assert [error.message for error in Draft202012Validator(schema).iter_errors(document)] == []
    return document


def test_the_compose_file_follows_the_settings() -> None:
    services = compose(SETTINGS)["services"]
    proxy = services["proxy-1"]
    environment = proxy["environment"]
    assert services["nginx"]["ports"] == ["8123:8080"]
    assert (proxy["mem_limit"], proxy["stop_grace_period"]) == ("4096m", "51s")
    assert proxy["volumes"] == ["/srv/rules.toml:/srv/rules.toml:ro"]
    # A secret comes from .env, and Compose reads $$ as $.
    assert environment["DOI_PROXY_ADMIN_TOKEN"] is None
    assert environment["DOI_PROXY_PUBLIC_URL"] == "https://doi.example.edu/$$x"
    assert environment["DOI_PROXY_STORE_URL"] == "valkey://valkey:6379/0"
    given = {name: str(value).replace("$$", "$") for name, value in environment.items() if value is not None}
    read = load({}, {**given, "DOI_PROXY_ADMIN_TOKEN": TOKEN})
    same = ("public_url", "workers", "drain_seconds", "upstream_rate", "library_rules", "status_access", "client_rate")
    assert {name for name in same if getattr(read, name) != getattr(SETTINGS, name)} == set()


def manifests(settings: Settings) -> dict[str, Any]:
    text = write_manifests(settings)
    assert not re.search(r"@[A-Z_]+@", text)
    documents = list(yaml.safe_load_all(text))
    for one in documents:
        kubernetes_validate.validate(one, "1.27", strict=True)
    return {one["kind"]: one for one in documents}


@pytest.mark.parametrize("settings", [Settings(), SETTINGS], ids=["defaults", "settings"])
def test_the_manifests_are_valid_and_their_settings_load(settings: Settings, tmp_path: Path) -> None:
    found = manifests(settings)
    assert set(found) == {
        "Deployment",
        "Service",
        "PodDisruptionBudget",
        "HorizontalPodAutoscaler",
        "NetworkPolicy",
        "Secret",
        "ConfigMap",
    }
    (tmp_path / "doi-proxy.toml").write_text(found["ConfigMap"]["data"]["doi-proxy.toml"], "utf-8")
    read = load({}, {"DOI_PROXY_ADMIN_TOKEN": TOKEN}, tmp_path / "doi-proxy.toml")
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert read.drain_seconds + read.grace_seconds < pod["terminationGracePeriodSeconds"]
    limit = int(pod["containers"][0]["resources"]["limits"]["memory"].removesuffix("Mi")) * 1024**2
    assert limit > read.workers * (read.cache_memory_bytes + read.express_memory_bytes)


def test_the_manifests_follow_the_settings() -> None:
    found = manifests(SETTINGS)
    text = found["ConfigMap"]["data"]["doi-proxy.toml"]
    written = tomllib.loads(text)
    assert written["server"]["port"] == 8000
    assert written["server"]["workers"] == 4
    assert written["upstream"]["rate"] == 20
    assert written["client"] == {"rate": 5}
    # A pod does not have the file.
    assert "library" not in written or written["library"] == {}
    assert '#rules = "/srv/rules.toml"' in text
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables["DOI_PROXY_ADMIN_TOKEN_FILE"] == "/run/secrets/doi-proxy/admin-token"
    assert set(found["Secret"]["stringData"]) == {"store-url", "admin-token"}
    assert "cache.example.edu:6379/2" in found["Secret"]["stringData"]["store-url"]


@pytest.mark.parametrize("write", [write_compose, write_manifests, lambda one: write_unit(one, CONFIG)])
def test_no_secret_is_written(write: Any) -> None:
    text = write(SETTINGS)
    assert TOKEN not in text and "hidden" not in text


@pytest.mark.process
def test_the_unit_follows_the_settings(tmp_path: Path) -> None:
    settings = Settings(port=443, drain_seconds=5, grace_seconds=20, store_url="sqlite:////srv/doi/x.sqlite3")
    text = write_unit(settings, Path("/etc/other.toml"))
    lines = text.splitlines()
    assert {
        "Environment=DOI_PROXY_CONFIG=/etc/other.toml",
        "TimeoutStopSec=37",
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


def test_a_path_with_a_character_of_a_configuration_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--config"):
        write_unit(Settings(), Path("/etc/a b.toml"))
    with pytest.raises(ConfigurationError, match="library_rules"):
        write_compose(Settings(library_rules=Path("/etc/a:b.toml")))


def test_the_command_prints_each_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gen-config", "compose"]) == 0
    assert capsys.readouterr().out == (ROOT / "docker-compose.yml").read_text("utf-8")
    assert main(["gen-config", "systemd"]) == 0
    assert capsys.readouterr().out == (ROOT / "config/systemd/doi-proxy.service").read_text("utf-8")
    assert main(["gen-config", "kubernetes"]) == 0
    assert "kind: ConfigMap" in capsys.readouterr().out
    assert main(["gen-config", "systemd", "--cache"]) == 2
    assert "front proxies" in capsys.readouterr().err
