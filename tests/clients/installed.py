"""Installs the clients in environments of their own, and runs them. Without a package index the tests are skipped."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any, Final

import pytest

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
REQUIREMENTS: Final = HERE / "requirements.in"
LOCK: Final = ROOT / "requirements" / "clients.lock"
_LOCK: Final = ROOT / "build" / ".installation"
#: Limit of an installation, in seconds. Without a cache of packages, the Python clients take more than a minute.
_INSTALLATION: Final = 600
#: Limit of one run of a client, in seconds: the end of one that hangs.
_RUN: Final = 600


def clients_from_pypi() -> list[str]:
    """The names of the clients from PyPI. A requirement with a version is not a client."""
    return [line for line in REQUIREMENTS.read_text("utf-8").split("\n") if re.fullmatch(r"[\w-]+", line)]


def install_python_clients() -> Path:
    """The interpreter of an environment with the clients from PyPI."""
    install("build/clients/.locked", ", ".join(clients_from_pypi()))
    return ROOT / "build" / "clients" / "bin" / "python"


def install_npm_clients() -> Path:
    """The folder from which Node finds the clients from the npm registry."""
    return install_from_npm(HERE, "@citation-js/core, @citation-js/plugin-doi, doi2bib")


def install_from_npm(folder: Path, names: str) -> Path:
    """Install the packages of a folder's package-lock.json, among them `names`. Returns the folder."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip(f"{names} need Node: apt-get install nodejs npm")
    install(str(folder.relative_to(ROOT) / "node_modules" / ".package-lock.json"), names)
    return folder


def install(target: str, names: str) -> None:
    """Make a target of the Makefile that installs the packages `names`. The test is skipped if that fails."""
    command = ["make", "--no-print-directory", target]
    _LOCK.parent.mkdir(exist_ok=True)
    try:
        # The processes of the tests must not install into the same folder at the same time.
        with _LOCK.open("w") as lock:
            flock(lock, LOCK_EX)
            done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=_INSTALLATION)
        reason = done.stderr.strip()[:300] if done.returncode else ""
    except subprocess.TimeoutExpired:
        reason = f"no end after {_INSTALLATION} s"
    except OSError as error:
        reason = str(error)
    if reason:
        pytest.skip(f"{names} could not be installed: {reason}")


def run_python(python: Path, code: str, environment: Mapping[str, str]) -> Any:
    """What `code` prints as JSON in its last line."""
    return _run([str(python), "-W", "ignore", "-c", code], environment)


def run_node(folder: Path, code: str, environment: Mapping[str, str]) -> Any:
    """The same of an ECMAScript module."""
    return _run(["node", "--no-warnings", "--input-type=module", "-e", code], environment, folder)


def _run(command: list[str], environment: Mapping[str, str], folder: Path = ROOT) -> Any:
    done = subprocess.run(
        command, cwd=folder, env=dict(environment), check=False, capture_output=True, text=True, timeout=_RUN
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().split("\n")[-1])
