"""The image of a release, built by buildah as an OCI archive. Its bytes depend on the commit and on the base image."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

from tools.release.archives import write_tar

#: The build fetches packages with the certificates of this machine.
_CERTIFICATES: Final = "/etc/ssl/certs"
#: Commands of the Dockerfile run in a chroot: that needs neither a container runtime nor namespaces.
_ISOLATION: Final = ("--isolation", "chroot", "--network", "host")


class BuildahFailed(Exception):
    """A command of buildah failed. The message has the command and the end of what it printed."""


class Buildah:
    """buildah with a storage of its own, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self._program = ["buildah", "--root", str(folder / "storage"), "--runroot", str(folder / "run")]

    def __call__(self, name: str, *words: str | Path) -> str:
        """What a command prints. Raises BuildahFailed."""
        isolation = _ISOLATION if name in ("build", "run") else ()
        command = [*self._program, name, *isolation, *map(str, words)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildahFailed(f"buildah {name}: {done.stdout[-2000:]}{done.stderr[-2000:]}".strip())
        return done.stdout.strip()


def read_base(source: Path) -> str:
    """The base image that the Dockerfile of a source names."""
    (base,) = re.findall(r"^ARG BASE=(\S+)$", (source / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    return str(base)


def fetch_base(buildah: Buildah, base: str) -> str:
    """Fetch a base image, and run a command in it. Returns its ID. Raises BuildahFailed.

    `base` is the name of an image, or a transport and a place, such as `oci-archive:FILE`.
    """
    image = buildah("pull", "--quiet", base)
    container = buildah("from", "--pull-never", image)
    buildah("run", container, "--", "python3", "--version")
    buildah("rm", container)
    return image


def write_image(
    buildah: Buildah, source: Path, base: str, arguments: dict[str, str], moment: int, layout: Path
) -> None:
    """Build the image of a source on a fetched base image, as an OCI layout in a new folder. Raises BuildahFailed.

    `arguments` are those of the Dockerfile, among them VERSION. `moment` is the time of each file that the build
    writes, in seconds since 1970.
    """
    given = {**arguments, "BASE": base, "SOURCE_DATE_EPOCH": str(moment)}
    words = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
    mounts = ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"]
    buildah(
        "build", "--quiet", "--pull-never", "--timestamp", str(moment), *mounts, *words, "--tag", "doi-proxy", source
    )
    buildah("push", "--quiet", "doi-proxy", f"oci:{layout}:doi-proxy:{arguments['VERSION']}")


def write_archive(layout: Path, output: Path, moment: int) -> None:
    """Write an OCI layout as one file. An archive that buildah writes has the time of the build."""
    write_tar(layout, output, moment, "")
