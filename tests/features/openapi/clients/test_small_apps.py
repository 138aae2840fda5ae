"""Small apps, written from the docs, tell 170 strings of four kinds apart.

Three of them use `/api/parse` and then `/api/resolve`. One sends the raw strings to `/api/resolve`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.features.openapi.clients.conftest import Site
from tests.features.openapi.clients.strings import STRINGS

pytestmark = [pytest.mark.process, pytest.mark.nightly]

APPS: Final = Path(__file__).resolve().parent / "apps"
#: For one app, in seconds: the end of one that hangs.
_RUN: Final = 600


@pytest.mark.parametrize(
    ("needs", "command"),
    [
        (["curl", "jq"], ["sh", str(APPS / "classify.sh")]),
        (["curl", "jq"], ["sh", str(APPS / "classify_list.sh")]),
        ([], [sys.executable, str(APPS / "classify.py")]),
        (["node"], ["node", str(APPS / "classify.mjs")]),
    ],
    ids=["curl and jq", "one list", "Python", "JavaScript"],
)
def test_an_app_tells_170_strings_apart(site: Site, needs: list[str], command: list[str]) -> None:
    if missing := [program for program in needs if shutil.which(program) is None]:
        pytest.skip(f"not installed: apt-get install {' '.join(missing)}")
    assert Counter(kind for _, kind in STRINGS) == {"doi": 50, "short_doi": 50, "not_a_doi": 20, "error": 50}
    lines = "".join(f"{text}\n" for text, _ in STRINGS)
    done = subprocess.run([*command, site.url], input=lines, check=False, capture_output=True, text=True, timeout=_RUN)
    assert done.returncode == 0, done.stderr
    got = done.stdout.split("\n")[:-1]
    assert len(got) == len(STRINGS)
    assert [(text, kind, said) for (text, kind), said in zip(STRINGS, got, strict=True) if said != kind] == []
