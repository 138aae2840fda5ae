"""The sums of all files of a release, and their signature by minisign."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.changes import ROOT

SUMS: Final = "SHA256SUMS"
#: The half of the key that verifies. A stranger has it from the repository, not from the place of the files.
PUBLIC_KEY: Final = ROOT / "packaging/minisign.pub"


def write_sums(folder: Path) -> None:
    """Write the file that `sha256sum --check` reads in this folder, with the sums of all files in it and below it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in paths]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def find_missing_key(secret: Path, public: Path) -> Iterator[str]:
    """Why nothing can be signed with the file of a secret key and that of its public half."""
    if shutil.which("minisign") is None:
        yield "there is no minisign (Debian package: minisign), but MINISIGN_KEY is given"
    if not secret.is_file():
        yield f"MINISIGN_KEY={secret} is not a file"
    if not public.is_file():
        yield f"there is no {public.name} in {public.parent}: make the pair of keys as docs/releases.md says"


def sign(folder: Path, version: str, secret: Path, public: Path) -> None:
    """Sign the sums in a folder with a secret key, for a version, and verify the signature with the public half.

    minisign asks for the password of the key. Raises `subprocess.CalledProcessError`.
    """
    sums = folder / SUMS
    # The signature covers this comment too: old sums cannot pass for those of a newer version.
    comment = f"doi-proxy {version}"
    subprocess.run(["minisign", "-S", "-s", secret, "-m", sums, "-t", comment], check=True)
    subprocess.run(["minisign", "-V", "-q", "-p", public, "-m", sums], check=True)
