"""Installs the generators of clients in environments of their own. Without a package index the tests are skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.clients.installed import ROOT, install, install_from_npm

HERE: Final = Path(__file__).resolve().parent


def install_python_generator() -> Path:
    """The folder with the programs of the environment for Python."""
    install("build/openapi/.locked", "openapi-python-client, httpx")
    return ROOT / "build" / "openapi" / "bin"


def install_typescript_generator() -> Path:
    """The folder from which Node finds the generator, the compiler and the library of the client."""
    return install_from_npm(HERE, "@hey-api/openapi-ts, openapi-fetch, openapi-typescript, typescript")
