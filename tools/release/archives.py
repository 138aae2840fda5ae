"""Archives and indexes whose bytes depend on the content alone."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from collections.abc import Mapping
from contextlib import ExitStack
from email.utils import formatdate
from pathlib import Path
from subprocess import run
from typing import Final

#: Of the files of an apt repository (deb822(5)).
_SUITE: Final = "stable"


def write_tar(folder: Path, output: Path, moment: int, top: str) -> None:
    """All files below a folder as a tar file: sorted, without an owner, with one time in seconds since 1970.

    A name ending in .gz compresses it. `top` goes before each name.
    """
    with ExitStack() as stack:
        file = stack.enter_context(output.open("wb"))
        packed = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0)) if output.suffix == ".gz" else file
        archive = stack.enter_context(tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT))
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(f"{top}{path.relative_to(folder).as_posix()}")
            entry.size, entry.mtime, entry.mode = path.stat().st_size, moment, 0o644
            with path.open("rb") as content:
                archive.addfile(entry, content)


def write_repository(package: Path, fields: str, folder: Path, moment: int) -> None:
    """An apt repository with one package: its pool, and the indexes of the suite stable, without a signature.

    `fields` is the control file of the package.
    """
    architecture = next(line.partition(": ")[2] for line in fields.splitlines() if line.startswith("Architecture: "))
    data = package.read_bytes()
    pooled = folder / "pool" / package.name
    pooled.parent.mkdir(parents=True)
    pooled.write_bytes(data)
    place = f"pool/{package.name}"
    index = f"{fields.rstrip()}\nFilename: {place}\nSize: {len(data)}\nSHA256: {_sum(data)}\n".encode()
    indexes = {"Packages": index, "Packages.gz": gzip.compress(index, mtime=0)}
    suite, binary = folder / "dists" / _SUITE, f"main/binary-{architecture}"
    (suite / binary).mkdir(parents=True)
    for name, content in indexes.items():
        (suite / binary / name).write_bytes(content)
    release = _write_release(architecture, {f"{binary}/{name}": content for name, content in indexes.items()}, moment)
    (suite / "Release").write_text(release, encoding="utf-8")


def _write_release(architecture: str, indexes: Mapping[str, bytes], moment: int) -> str:
    sums = "".join(f" {_sum(content)} {len(content)} {name}\n" for name, content in sorted(indexes.items()))
    return (
        f"Origin: doi-proxy\nLabel: doi-proxy\nSuite: {_SUITE}\nCodename: {_SUITE}\nArchitectures: {architecture}\n"
        f"Components: main\nDate: {formatdate(moment, usegmt=True)}\nSHA256:\n{sums}"
    )


def read_fields(package: Path) -> str:
    """The control file of a Debian package."""
    return run(["dpkg-deb", "--field", package], check=True, capture_output=True, text=True).stdout


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
