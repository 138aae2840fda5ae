"""The image of a release: its process serves with a read-only root, as the image's user and as another one.

It is the archive that `make release` built of this commit, or one that is built here on a base of Debian packages.
Shown: both stages build; the process answers from its volume after a restart, and ends at SIGTERM; the command of
HEALTHCHECK notices both. Not shown: the published base image, a container engine.
"""

from __future__ import annotations

import json
import os
import shutil
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
from tests.test_packaging import ROOT, all_of, stages
from tools.changes import run_git
from tools.release.base import PROGRAMS, make_base
from tools.release.image import Buildah, BuildahFailed, fetch_base, write_image

pytestmark = [pytest.mark.repository, pytest.mark.nightly, pytest.mark.process]

STATE: Final = "/var/lib/doi-proxy"
#: For one command, in seconds: the end of one that hangs.
DEADLINE: Final = 600


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The folder with the file system of the image, and its configuration."""
    if os.geteuid() != 0 or (missing := [program for program in PROGRAMS if shutil.which(program) is None]):
        pytest.skip(f"there is no image: needs root and the Debian packages {' and '.join(PROGRAMS)} ({missing})")
    folder = tmp_path_factory.mktemp("image")
    buildah = Buildah(folder)
    try:
        image = find_released(buildah) or build(buildah, folder)
        container = buildah("from", "--pull-never", image)
        yield (
            Path(buildah("mount", container)),
            json.loads(buildah("inspect", "--type", "image", image))["OCIv1"]["config"],
        )
        buildah("umount", container)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_released(buildah: Buildah) -> str | None:
    """The image in dist/, if it was built of this commit: its ID."""
    if run_git("status", "--porcelain").strip():
        return None
    for archive in (ROOT / "dist").glob("*-image.tar"):
        image = buildah("pull", "--quiet", f"oci-archive:{archive}")
        labels = json.loads(buildah("inspect", "--type", "image", image))["OCIv1"]["config"]["Labels"]
        if labels["org.opencontainers.image.revision"] == run_git("rev-parse", "HEAD").strip():
            return image
    return None


def build(buildah: Buildah, folder: Path) -> str:
    """Build the image of this checkout: its ID. Skips the tests where the packages of its base cannot be fetched."""
    base = folder / "base.tar"
    try:
        make_base(base)
    except (subprocess.CalledProcessError, BuildahFailed) as error:
        pytest.skip(f"the base of the image cannot be made: {error}")
    write_image(buildah, ROOT, fetch_base(buildah, f"oci-archive:{base}"), {"VERSION": VERSION}, 1, folder / "layout")
    return buildah("images", "--quiet", "doi-proxy")


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
    """The image's process: a read-only root, /tmp in memory, and a folder of this machine as its volume."""

    def __init__(self, root: Path, config: dict[str, Any], volume: Path, upstream: str, user: str) -> None:
        self.port = free_port()
        settings = {"PORT": self.port, "UPSTREAM_URL": upstream}
        self._environment = dict(word.split("=", 1) for word in config["Env"])
        self._environment |= {f"DOI_PROXY_{name}": str(value) for name, value in settings.items()}
        # What an engine does, in a namespace of mounts. The script becomes the program: it gets the signal.
        mounts = (
            f"mount --bind {root} {root}; mount --bind {volume} {root}{STATE}; mount -t tmpfs tmpfs {root}/tmp;"
            f"mount --rbind /proc {root}/proc; mount --rbind /dev {root}/dev; mount -o remount,bind,ro {root};"
            f'cd /; exec chroot --userspec={user} {root} "$@"'
        )
        self._start = ["unshare", "--mount", "sh", "-e", "-c", mounts, "sh"]
        command = [*self._start, *config["Entrypoint"], config["Cmd"][0], "--host", "127.0.0.1"]
        self._process = subprocess.Popen(command, env=self._environment)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*self._start, *words]
        return subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=DEADLINE, check=False
        )

    def check_health(self) -> int:
        """The exit status of the command of HEALTHCHECK."""
        (check,) = all_of(stages()[-1], "HEALTHCHECK")
        return self.run(*json.loads(check.partition(" CMD ")[2])).returncode

    def wait(self) -> None:
        """Wait until the program is ready."""
        deadline = time.monotonic() + DEADLINE
        while self.get("/readyz")[0] != 200:
            assert self._process.poll() is None, "the process of the image ended"
            assert time.monotonic() < deadline, "the process of the image is not ready"
            time.sleep(0.1)

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
        self._process.terminate()
        return self._process.wait(timeout=DEADLINE)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


# The user of the image, and one that an engine was told to use (`--user`).
@pytest.mark.parametrize("user", ["10001:10001", "20002:20002"])
def test_the_process_of_the_image_answers_and_keeps_its_cache_over_a_restart(
    root: tuple[Path, dict[str, Any]], user: str, tmp_path: Path
) -> None:
    place, config = root
    assert config["User"] == "10001:10001"
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o750)
    os.chown(volume, *map(int, user.split(":")))
    with stand_in(tmp_path) as upstream:
        first = Container(place, config, volume, upstream, user)
        first.wait()
        assert first.get("/10.1000/182") == (302, "https://example.org/182")
        assert first.check_health() == 0
        assert first.run("doi-proxy", "cache", "show").stdout.startswith('{"entries": 1,')
        assert "There are" in first.run("doi-proxy", "check").stdout
        assert first.run("id", "-u").stdout == f"{user.partition(':')[0]}\n"
        assert "Read-only file system" in first.run("touch", "/opt/doi-proxy/x").stderr
        assert first.run("/opt/doi-proxy/bin/python", "-m", "pip", "--version").returncode == 1
        assert first.stop() == 0
        assert first.check_health() == 1
    second = Container(place, config, volume, upstream, user)
    second.wait()
    assert second.get("/10.1000/182") == (302, "https://example.org/182")
    assert second.get("/10.1000/183")[0] == 502
    assert second.stop() == 0
