"""The programs that a measurement needs besides Python; a missing one is named with its package."""

from __future__ import annotations

import os
import shutil
from typing import Final

#: The Debian package of each program.
PACKAGES: Final = {
    "wrk": "wrk",
    "h2load": "nghttp2-client",
    "nginx": "nginx",
    "valgrind": "valgrind",
    "taskset": "util-linux",
}


class NotMeasured(Exception):
    """Something cannot be measured here; the message says why and what would change that."""


def need(*names: str) -> None:
    """Raises NotMeasured that names every missing program with its package."""
    missing = [name for name in names if shutil.which(name, path=search_path()) is None]
    if missing:
        packages = " ".join(PACKAGES[name] for name in missing)
        raise NotMeasured(f"not measured: {', '.join(missing)} not found; install it with: apt-get install {packages}")


def search_path() -> str:
    """Where programs are looked for: nginx is in a folder that a person's PATH may lack."""
    return os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin"
