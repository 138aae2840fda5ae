"""Installs the generators of clients in environments of their own. Without a package index the tests are skipped."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.clients.installed import ROOT, install

HERE: Final = Path(__file__).resolve().parent


def install_python_generator() -> Path:
    """The folder with the programs of the environment for Python."""
    install(["make", "--no-print-directory", "build/openapi/.locked"], "openapi-python-client, httpx")
    return ROOT / "build" / "openapi" / "bin"


def install_typescript_generator() -> Path:
    """The folder from which Node finds the generator, the compiler and the library of the client."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("the TypeScript client needs Node: apt-get install nodejs npm")
    stamp = HERE / "node_modules" / ".package-lock.json"
    if not stamp.exists() or stamp.stat().st_mtime < (HERE / "package-lock.json").stat().st_mtime:
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        install([npm, "ci", "--prefix", str(HERE), *flags], "openapi-fetch, openapi-typescript, typescript")
    return HERE
