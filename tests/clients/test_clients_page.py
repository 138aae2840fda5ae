"""docs/clients.md names every client that is driven, in the version that is driven."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from tests.clients.installed import HERE, LOCK, ROOT, clients_from_pypi

pytestmark = pytest.mark.repository

DEV_LOCK: Final = ROOT / "requirements" / "dev.lock"
ROW: Final = re.compile(r"^\| ([@\w/.-]+) \| ([\w.]+) \|", re.MULTILINE)


def locked(path: Path) -> dict[str, str]:
    """The version of each package of a lock."""
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", path.read_text("utf-8"), re.MULTILINE))


def test_the_page_has_every_client_in_its_locked_version() -> None:
    python = set(clients_from_pypi())
    packages = json.loads((HERE / "package-lock.json").read_text("utf-8"))["packages"]
    expected = {name: version for name, version in locked(LOCK).items() if name in python}
    expected |= {name: locked(DEV_LOCK)[name] for name in ("habanero", "pyhandle")}
    expected |= {name: packages[f"node_modules/{name}"]["version"] for name in ("@citation-js/plugin-doi", "doi2bib")}
    assert len(expected) == len(python) + 4
    shown = dict(ROW.findall((ROOT / "docs" / "clients.md").read_text("utf-8")))
    assert {name: shown.get(name) for name in expected} == expected
