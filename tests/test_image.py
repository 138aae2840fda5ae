"""The image: buildah builds the Dockerfile, on a base made of Debian packages, and runs its process.

Shown: both stages build; the process of the image runs as its user, answers from its volume after a restart, and ends
at SIGTERM; the command of HEALTHCHECK notices both. Not shown: the published base image, a read-only root file system.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from doi_proxy.system.version import VERSION
from tests.cluster.processes import Process
from tests.ports import free_port
from tests.test_packaging import ROOT

pytestmark = [pytest.mark.repository, pytest.mark.nightly, pytest.mark.process]

BASE: Final = (ROOT / "Dockerfile").read_text("utf-8").partition("FROM ")[2].split()[0]
PACKAGES: Final = "python3,python3-venv,python3-pip,ca-certificates"
CERTIFICATES: Final = "/etc/ssl/certs"
STATE: Final = "/var/lib/doi-proxy"
#: For one command, in seconds; the build takes 35 to 50 s on two idle cores.
DEADLINE: Final = 600


class Buildah:
    """buildah with a storage of its own, and without a container runtime."""

    def __init__(self, folder: Path) -> None:
        self._command = ["buildah", "--root", str(folder / "storage"), "--runroot", str(folder / "run")]

    def command(self, name: str, *words: str) -> list[str]:
        isolation = ["--isolation", "chroot", "--network", "host"] if name in ("build", "run") else []
        return [*self._command, name, *isolation, *words]

    def __call__(self, name: str, *words: str, may_fail: bool = False) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(name, *words), capture_output=True, text=True, timeout=DEADLINE, check=False, cwd=ROOT
        )
        assert may_fail or done.returncode == 0, f"buildah {name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done

    def work_in(self, image: str) -> str:
        """A new container of an image: its name."""
        return self("from", "--pull-never", image).stdout.strip()


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """buildah with the base image, under the name that the Dockerfile uses."""
    missing = [package for package in ("buildah", "mmdebstrap") if shutil.which(package) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"the image is not built: needs root and the Debian packages buildah and mmdebstrap ({missing})")
    folder = tmp_path_factory.mktemp("image")
    try:
        yield make_base(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_base(folder: Path) -> Buildah:
    """Make the base image. Skips the tests where this machine cannot fetch its packages or run a container."""
    tree = folder / "base.tar"
    command = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(tree)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    if made.returncode != 0:
        pytest.skip(f"the image is not built: mmdebstrap cannot make a base: {made.stderr[-300:]}")
    buildah = Buildah(folder)
    base = buildah.work_in("scratch")
    buildah("add", "--quiet", base, str(tree), "/")
    tree.unlink()
    tried = buildah("run", base, "--", "/usr/bin/python3", "--version", may_fail=True)
    if tried.returncode != 0:
        pytest.skip(f"the image is not built: containers cannot run on this machine: {tried.stderr[-300:]}")
    buildah("commit", "--quiet", "--rm", base, BASE)
    return buildah


@pytest.fixture(scope="module")
def image(buildah: Buildah) -> str:
    """The image of the Dockerfile."""
    name = f"localhost/doi-proxy:{VERSION}"
    mounts = ["--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
    buildah("build", "--pull-never", "--format", "docker", *mounts, "--tag", name, ".")
    return name


@contextmanager
def stand_in(folder: Path) -> Iterator[str]:
    """The URL of a stand-in for doi.org that knows one name."""
    record = {"index": 1, "type": "URL", "ttl": 86400, "timestamp": "2024-01-01T00:00:00Z"}
    record["data"] = {"format": "string", "value": "https://example.org/182"}
    (folder / "records.ndjson").write_text(json.dumps({"handle": "10.1000/182", "values": [record]}) + "\n", "utf-8")
    command = [sys.executable, "-m", "tests.fake_upstream", "--records", str(folder / "records.ndjson")]
    process = Process(command, folder / "upstream.log")
    try:
        yield f"http://127.0.0.1:{process.read_port()}"
    finally:
        process.terminate()


class Container:
    """The image's process, in a container whose volume is a folder of this machine."""

    def __init__(self, buildah: Buildah, image: str, volume: Path, upstream: str) -> None:
        facts = json.loads(buildah("inspect", "--type", "image", image).stdout)["Docker"]["config"]
        self.port, self._volume, self._buildah = free_port(), volume, buildah
        self._facts: dict[str, Any] = facts
        settings = {"PORT": self.port, "UPSTREAM_URL": upstream, "WORKERS": 2}
        environment = [word for key, value in settings.items() for word in ("--env", f"DOI_PROXY_{key}={value}")]
        self._words = ["--volume", f"{volume}:{STATE}", *environment, buildah.work_in(image), "--"]
        # The process number is that of this machine: chroot isolation has no namespace for them.
        start = f'echo $$ >{STATE}/pid; exec "$@"'
        serve = [*facts["Entrypoint"], facts["Cmd"][0], "--host", "127.0.0.1"]
        self._process = subprocess.Popen(buildah.command("run", *self._words, "sh", "-c", start, "sh", *serve))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._buildah("run", *self._words, *words, may_fail=True)

    def check_health(self) -> int:
        """The exit status of the command of HEALTHCHECK."""
        kind, *command = self._facts["Healthcheck"]["Test"]
        assert kind == "CMD"
        return self.run(*command).returncode

    def wait(self) -> None:
        """Wait at most 20 s until the program is ready."""
        for _ in range(200):
            if self.get("/readyz")[0] == 200:
                return
            time.sleep(0.1)
        raise AssertionError("the process of the image is not ready")

    def get(self, path: str) -> tuple[int, str]:
        """The status and the Location of an answer; 0 if there is none."""
        opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers.get("Location") or ""
        except OSError:
            return 0, ""

    def stop(self) -> int:
        """The exit status after SIGTERM."""
        os.kill(int((self._volume / "pid").read_text()), signal.SIGTERM)
        return self._process.wait(timeout=60)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A folder of the image's user, as an engine makes of the declared volume."""
    place = tmp_path / "volume"
    place.mkdir(mode=0o750)
    os.chown(place, 10001, 10001)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    return place


def test_the_process_of_the_image_answers_and_keeps_its_cache_over_a_restart(
    buildah: Buildah, image: str, volume: Path, tmp_path: Path
) -> None:
    with stand_in(tmp_path) as upstream:
        first = Container(buildah, image, volume, upstream)
        first.wait()
        assert first.get("/10.1000/182") == (302, "https://example.org/182")
        assert first.check_health() == 0
        assert first.run("doi-proxy", "cache", "show").stdout.startswith('{"entries": 1,')
        assert "There are" in first.run("doi-proxy", "check").stdout
        assert first.run("id", "-u").stdout == "10001\n"
        assert first.run("touch", "/opt/doi-proxy/x").returncode == 1
        assert first.run("/opt/doi-proxy/bin/python", "-m", "pip", "--version").returncode == 1
        assert first.stop() == 0
        assert first.check_health() == 1
    second = Container(buildah, image, volume, upstream)
    second.wait()
    assert second.get("/10.1000/182") == (302, "https://example.org/182")
    assert second.get("/10.1000/183")[0] == 502
    assert second.stop() == 0
