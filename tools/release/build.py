"""Builds the artefacts of a release in one folder. Their bytes depend on the commit and on the arguments alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from doi_proxy.system.version import BUILT
from tools.changes import ROOT, run_git
from tools.release.archives import read_fields, write_repository, write_tar
from tools.release.image import Buildah, BuildahFailed, fetch_base, read_base, write_archive, write_image
from tools.release.packages import read_packages, write_licences, write_list

_UV: Final = ROOT / ".tools/bin/uv"
#: The file with the version, in a source without the history.
VERSION_FILE: Final = f"app/doi_proxy/system/{BUILT}"


#: The page at the top of the manual.
_START: Final = '<!doctype html><meta http-equiv="refresh" content="0; url={page}"><a href="{page}">doi-proxy</a>\n'


@dataclass(frozen=True, slots=True)
class Release:
    """What a release is made of. `moment` is the time of the commit in seconds since 1970."""

    version: str
    commit: str
    moment: int
    #: `Name <address>`, and a URL. Empty if they were not given.
    maintainer: str
    homepage: str
    #: The python3 of the Debian release that runs the package.
    debian_python: Path
    #: The base of the image, as `buildah pull` takes it. Empty: the one that the Dockerfile names.
    image_base: str = ""


class NotBuilt(Exception):
    """This machine cannot build an artefact. The message says what is missing."""


Run = Callable[..., None]
#: Builds an artefact, given the release, its source, a folder for intermediate files, the folder of the artefacts, and
#: a function that runs a command in the source. Raises NotBuilt.
Step = Callable[[Release, Path, Path, Path, Run], None]


def build(release: Release, work: Path, output: Path, steps: Sequence[Step] | None = None) -> list[str]:
    """Build all artefacts, or those of `steps`, in the empty folder `output`.

    `work` is an empty folder for intermediate files. Returns a line for each artefact that this machine cannot build.
    Raises `subprocess.CalledProcessError`.
    """
    source = _export(release, work / "source")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(release.moment), "DOI_PROXY_MAINTAINER": release.maintainer}
    environment |= {"DOI_PROXY_HOMEPAGE": release.homepage, "PYTHONHASHSEED": "0"}
    os.umask(0o022)

    def run(*words: str | Path) -> None:
        subprocess.run([str(word) for word in words], cwd=source, env=environment, check=True)

    missing = []
    for step in STEPS if steps is None else steps:
        try:
            step(release, source, work, output, run)
        except NotBuilt as error:
            missing.append(str(error))
    return missing


def _export(release: Release, source: Path) -> Path:
    """The files of the commit, with the version, the maintainer and the homepage written into them."""
    source.mkdir(parents=True)
    with subprocess.Popen(["git", "archive", release.commit], cwd=ROOT, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "-x", "-C", source], stdin=archive.stdout, check=True)
    (source / VERSION_FILE).write_text(release.version, encoding="ascii")
    project = source / "pyproject.toml"
    project.write_text(add_metadata(project.read_text(encoding="utf-8"), release), encoding="utf-8")
    return source


def add_metadata(project: str, release: Release) -> str:
    """The text of pyproject.toml with the maintainer and the homepage of a release."""
    name, _, address = release.maintainer.rstrip(">").partition(" <")
    lines = [f'maintainers = [{{ name = "{name}", email = "{address}" }}]'] if release.maintainer else []
    lines += [f'urls = {{ Homepage = "{release.homepage}" }}'] if release.homepage else []
    return project.replace('dynamic = ["version"]\n', "\n".join(['dynamic = ["version"]', *lines, ""]), 1)


def _build_python(_: Release, source: Path, __: Path, output: Path, run: Run) -> None:
    run(_UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", output, source)
    # uv writes it beside what it builds.
    (output / ".gitignore").unlink(missing_ok=True)


def build_debian(release: Release, source: Path, _: Path, output: Path, run: Run) -> None:
    if missing := [name for name in ("dpkg-deb", "dpkg") if shutil.which(name) is None]:
        raise NotBuilt(f"no Debian package: there is no {missing[0]}")
    if not release.debian_python.exists():
        raise NotBuilt(f"no Debian package: there is no {release.debian_python} (DEB_PYTHON)")
    run(source / "packaging/debian/build.sh", _UV, release.debian_python, sys.executable, output)
    (package,) = output.glob("*.deb")
    write_repository(package, read_fields(package), output / "apt", release.moment)


def build_manual(release: Release, source: Path, work: Path, output: Path, run: Run) -> None:
    """Build the manual as HTML and as text. Its links name files, because a browser lists a folder on a disk."""
    manual = work / f"doi-proxy-{release.version}-manual"
    for builder in ("html", "text"):
        sphinx = (Path(sys.executable).with_name("sphinx-build"), "--quiet", "-d", work / "doctrees", "-c", "docs")
        run(*sphinx, "-b", builder, ".", manual / builder)
    (manual / "html/index.html").write_text(_START.format(page="docs/index.html"), encoding="utf-8")
    # It has the places of the sources, and serves a second build alone.
    for path in [*manual.rglob(".buildinfo*"), *manual.rglob("objects.inv")]:
        path.unlink()
    shutil.copy(source / "LICENSE", manual)
    write_tar(manual, output / f"{manual.name}.tar.gz", release.moment, f"{manual.name}/")


def _build_shell_files(release: Release, source: Path, work: Path, output: Path, run: Run) -> None:
    files = work / f"doi-proxy-{release.version}-man-and-completion"
    files.mkdir()
    run(sys.executable, source / "packaging/built_files.py", files, release.version)
    write_tar(files, output / f"{files.name}.tar.gz", release.moment, f"{files.name}/")


def _build_lists(release: Release, _: Path, work: Path, output: Path, run: Run) -> None:
    # The lock also has packages for other systems, and for other versions of Python than that of this environment.
    python = release.debian_python if release.debian_python.exists() else sys.executable
    install = (_UV, "pip", "install", "--quiet", "--python", python, "--no-deps", "--require-hashes")
    run(*install, "--target", work / "parts", "-r", "requirements/runtime.lock")
    packages = read_packages(work / "parts")
    moment = datetime.fromtimestamp(release.moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    parts = write_list(release.version, release.commit, moment, packages)
    (output / f"doi-proxy-{release.version}.cdx.json").write_text(parts, encoding="utf-8")
    (output / f"doi-proxy-{release.version}-licences.txt").write_text(write_licences(packages), encoding="utf-8")


def _build_image(release: Release, source: Path, work: Path, output: Path, _: Run) -> None:
    if shutil.which("buildah") is None:
        raise NotBuilt("no image: there is no buildah")
    buildah, layout = Buildah(work / "image"), work / "layout"
    try:
        base = fetch_base(buildah, release.image_base or read_base(source))
    except BuildahFailed as error:
        raise NotBuilt(f"no image: its base cannot be used (IMAGE_BASE names another one): {error}") from error
    arguments = {"VERSION": release.version, "REVISION": release.commit}
    write_image(buildah, source, base, arguments, release.moment, layout)
    write_archive(layout, output / f"doi-proxy-{release.version}-image.tar", release.moment)


STEPS: Final[tuple[Step, ...]] = (
    _build_python,
    build_debian,
    build_manual,
    _build_shell_files,
    _build_lists,
    _build_image,
)


def read_commit(version: str, maintainer: str, homepage: str, debian_python: Path, image_base: str = "") -> Release:
    """The release of the commit that is checked out."""
    commit, moment = run_git("log", "-1", "--format=%H %ct").split()
    return Release(version, commit, int(moment), maintainer, homepage, debian_python, image_base)
