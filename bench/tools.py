"""The programs that a measurement needs in addition to Python, with their Debian packages."""

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
    "openssl": "openssl",
}


class NotMeasured(Exception):
    """Something cannot be measured. The message says why, and what to do."""


def need(*names: str) -> None:
    """Raise NotMeasured if programs are missing. The message names each with its package."""
    missing = [name for name in names if shutil.which(name, path=search_path()) is None]
    if missing:
        packages = " ".join(PACKAGES[name] for name in missing)
        raise NotMeasured(f"not measured: {', '.join(missing)} not found; install it with: apt-get install {packages}")


def search_path() -> str:
    """The search path of programs. nginx is in /usr/sbin, which PATH may lack."""
    return os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin"
